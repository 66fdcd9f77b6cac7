"""The simplest honest gang scheduler: all workers of a job at once, or none.

Workers of a gang job are created with a scheduling gate, Kubernetes's own way of keeping a pod from the scheduler (as
Kueue does): a gated pod holds no slot, and its master is up and waits. As soon as enough slots are free for all workers
of the job, all its gates are removed. So the second job never holds a part of the slots, and its start costs no more
than that of an elastic one; it even has its master earlier than with Kueue.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from slot_usage import requested_slots

from elasticdl.kube.api import Api
from elasticdl.kube.kinds import POD
from elasticdl.kube.watch import WatchCache, follow_changes
from elasticdl.launcher.kubernetes.naming import JOB_LABEL

GATE = "elasticdl.org/gang"
Document = dict[str, Any]


class GangScheduler:
    """Looks at all pods whenever one changes, until the end of the `with`."""

    def __init__(self, api: Api, namespace: str, slots: int, replicas: int) -> None:
        self._api = api
        self._namespace = namespace
        self._slots = slots
        self._replicas = replicas
        self._stopped = threading.Event()

    def __enter__(self) -> GangScheduler:
        threading.Thread(target=self._run, name="gang", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def _run(self) -> None:
        cache = WatchCache()
        for _ in follow_changes(self._api, POD, self._namespace, "", self._stopped, cache=cache):
            for name in admissible_pods(cache.objects.values(), self._slots, self._replicas):
                self._api.patch(POD, name, {"spec": {"schedulingGates": None}}, self._namespace)


def admissible_pods(pods: Iterable[Document], slots: int, replicas: int) -> list[str]:
    """Returns the names of the pods to admit: those of the oldest complete job if it fits into the free slots."""
    free_slots, gangs = slots, dict[str, list[Document]]()
    for pod in pods:
        if pod["spec"].get("schedulingGates"):
            gangs.setdefault(pod["metadata"]["labels"][JOB_LABEL], []).append(pod)
        elif pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            free_slots -= requested_slots(pod)
    complete_gangs = [gang for gang in gangs.values() if len(gang) == replicas]
    if not complete_gangs:
        return []
    oldest_gang = min(complete_gangs, key=lambda gang: min(pod["metadata"]["creationTimestamp"] for pod in gang))
    return (
        [pod["metadata"]["name"] for pod in oldest_gang] if sum(map(requested_slots, oldest_gang)) <= free_slots else []
    )
