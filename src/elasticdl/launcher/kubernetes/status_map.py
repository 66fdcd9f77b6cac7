"""The ConfigMap in which a master publishes its status and its result, and how a master ends for good.

A StatefulSet never completes: a master that is done must write its result for others, and then scale its own set to
zero. In this order, because a set without pods and without a result was suspended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from elasticdl.kube.api import Api
from elasticdl.kube.errors import NotFound
from elasticdl.kube.kinds import CONFIG_MAP, STATEFUL_SET
from elasticdl.launcher.kubernetes.naming import MASTER, STATUS, Document, Owner, job_labels
from elasticdl.spec import Phase

RESULT_KEY = "result.json"


def status_map_name(job: str) -> str:
    return f"{job}-{STATUS}"


def master_set_name(job: str) -> str:
    return f"{job}-{MASTER}"


def write_status(api: Api, job: str, namespace: str, owner: Owner, data: Mapping[str, str]) -> None:
    """Write `data` to the status ConfigMap of the job; other keys stay."""
    try:
        api.patch(CONFIG_MAP, status_map_name(job), {"data": dict(data)}, namespace)
    except NotFound:
        api.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": status_map_name(job),
                    "namespace": namespace,
                    "labels": job_labels(job, STATUS),
                    "ownerReferences": [owner.reference],
                },
                "data": dict(data),
            }
        )


def read_result(status_map: Mapping[str, object] | None, owner_uid: str) -> Document | None:
    """The result in the status ConfigMap, if that belongs to this set and not to an earlier one of the same name."""
    metadata, data = (status_map or {}).get("metadata", {}), (status_map or {}).get("data") or {}
    assert isinstance(metadata, dict) and isinstance(data, dict)
    is_ours = owner_uid in [owner["uid"] for owner in metadata.get("ownerReferences", [])]
    result = json.loads(data[RESULT_KEY]) if is_ours and RESULT_KEY in data else None
    return result if isinstance(result, dict) else None


def retire_master(api: Api, job: str, namespace: str) -> None:
    """Scale the master's StatefulSet to zero. Idempotent; does nothing if the set was deleted."""
    try:
        api.patch(STATEFUL_SET, master_set_name(job), {"spec": {"replicas": 0}}, namespace, "scale")
    except NotFound:
        return


def write_refusal(api: Api, job: str, namespace: str, reason: str, exit_code: int) -> None:
    """Record that the job cannot begin, and retire its master instead of restarting it forever.

    An existing result stays.
    """
    stateful_set = api.get(STATEFUL_SET, master_set_name(job), namespace)
    if stateful_set is None:
        return
    owner = Owner.from_object(stateful_set)
    if read_result(api.get(CONFIG_MAP, status_map_name(job), namespace), owner.uid) is None:
        result = {"name": job, "phase": Phase.FAILED, "reason": reason, "exit_code": exit_code, "ended_at": time.time()}
        write_status(api, job, namespace, owner, {RESULT_KEY: json.dumps(result)})
    retire_master(api, job, namespace)
