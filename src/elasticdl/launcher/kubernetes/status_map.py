"""What a master writes down for others, and how it ends for good.

A StatefulSet knows no end: whoever is over must say so where others find it, and then scale its own set to nothing.
In this order: a set without pods and without a result is one that was suspended.
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
    """Into the ConfigMap that says how the job stands; keys that are not in `data` stay."""
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


def read_result(held: Mapping[str, object] | None, owner_uid: str) -> Document | None:
    """What the ConfigMap says of the end, if it belongs to this set and not to an earlier one of the same name."""
    metadata, data = (held or {}).get("metadata", {}), (held or {}).get("data") or {}
    assert isinstance(metadata, dict) and isinstance(data, dict)
    is_ours = owner_uid in [one["uid"] for one in metadata.get("ownerReferences", [])]
    found = json.loads(data[RESULT_KEY]) if is_ours and RESULT_KEY in data else None
    return found if isinstance(found, dict) else None


def retire_master(api: Api, job: str, namespace: str) -> None:
    """No pod for this master any more. May be said again; a set that was deleted has none anyway."""
    try:
        api.patch(STATEFUL_SET, master_set_name(job), {"spec": {"replicas": 0}}, namespace, "scale")
    except NotFound:
        return


def write_refusal(api: Api, job: str, namespace: str, reason: str, exit_code: int) -> None:
    """The job cannot begin: say why, instead of trying again for ever. A result that is there stays."""
    found = api.get(STATEFUL_SET, master_set_name(job), namespace)
    if found is None:
        return
    owner = Owner.from_object(found)
    if read_result(api.get(CONFIG_MAP, status_map_name(job), namespace), owner.uid) is None:
        result = {"name": job, "phase": Phase.FAILED, "reason": reason, "exit_code": exit_code, "ended_at": time.time()}
        write_status(api, job, namespace, owner, {RESULT_KEY: json.dumps(result)})
    retire_master(api, job, namespace)
