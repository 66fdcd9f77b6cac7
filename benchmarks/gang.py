"""The simplest honest gang scheduler: all workers of a job at once, or none.

Workers of a gang job are created with a scheduling gate, Kubernetes's own way of keeping a pod from the scheduler (as
Kueue does): a pod behind it holds nothing, and its master is up and waits. As soon as as many slots are free as the job
wishes, all its gates are lifted. So the second job never holds a part of the slots, and its start costs no more than
that of an elastic one; it has its master even earlier than Kueue would give it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from slots import slots_asked

from elasticdl.kube.api import Api
from elasticdl.kube.kinds import POD
from elasticdl.kube.watch import WatchCache, follow_changes
from elasticdl.launcher.kubernetes.naming import JOB_LABEL

GATE = "elasticdl.org/gang"
Document = dict[str, Any]


class GangScheduler:
    """Looks at all pods at every change of one; until the end of the `with`."""

    def __init__(self, api: Api, namespace: str, slots: int, wish: int) -> None:
        self._api = api
        self._namespace = namespace
        self._slots = slots
        self._wish = wish
        self._stopped = threading.Event()

    def __enter__(self) -> GangScheduler:
        threading.Thread(target=self._run, name="gang", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def _run(self) -> None:
        cache = WatchCache()
        for _ in follow_changes(self._api, POD, self._namespace, "", self._stopped, cache=cache):
            for name in admitted(cache.objects.values(), self._slots, self._wish):
                self._api.patch(POD, name, {"spec": {"schedulingGates": None}}, self._namespace)


def admitted(pods: Iterable[Document], slots: int, wish: int) -> list[str]:
    """Names of the pods to let go: a whole job that fits in what is free, the oldest first, or nobody."""
    free, gangs = slots, dict[str, list[Document]]()
    for pod in pods:
        if pod["spec"].get("schedulingGates"):
            gangs.setdefault(pod["metadata"]["labels"][JOB_LABEL], []).append(pod)
        elif pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            free -= slots_asked(pod)
    whole = [gang for gang in gangs.values() if len(gang) == wish]
    if not whole:
        return []
    oldest = min(whole, key=lambda gang: min(pod["metadata"]["creationTimestamp"] for pod in gang))
    return [pod["metadata"]["name"] for pod in oldest] if sum(map(slots_asked, oldest)) <= free else []
