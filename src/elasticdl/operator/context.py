"""One ElasticJob, the objects that belong to it in the cluster, and how to report events about it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from elasticdl.errors import TransientError
from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.launcher.kubernetes import naming
from elasticdl.operator import job_status

Document = dict[str, Any]
ReportEvent = Callable[[Document, str, str, str], None]  # the object, Normal or Warning, reason, message


class ObjectConflict(TransientError):
    """Something of another must go first; a person may have to do it."""


class MasterSnapshot(NamedTuple):
    """All that a look takes from the master: one that stands as it did needs no other look."""

    uid: str
    replicas: int
    is_ready: bool
    is_being_deleted: bool


def master_snapshot(master: Document | None) -> MasterSnapshot | None:
    if master is None:
        return None
    is_ready = (master.get("status") or {}).get("readyReplicas", 0) > 0
    is_going = "deletionTimestamp" in master["metadata"]
    return MasterSnapshot(master["metadata"]["uid"], master["spec"]["replicas"], is_ready, is_going)


@dataclass
class ElasticJobContext:
    """One ElasticJob and what is around it."""

    api: Api
    resource: Document
    report: ReportEvent
    conditions: list[job_status.Condition] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.resource["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.resource["metadata"]["namespace"])

    @property
    def master_name(self) -> str:
        return f"{self.name}-{naming.MASTER}"

    @property
    def master_replicas(self) -> int:
        """Pods that the master shall have, as long as it is not over."""
        return 0 if self.resource["spec"].get("suspend") else 1

    @property
    def owner(self) -> naming.Owner:
        return naming.Owner.from_object(self.resource)

    def find_owned(self, kind: kinds.ResourceKind, name: str) -> Document | None:
        """The object, if it belongs to this ElasticJob; one that belongs to another is waited for to go."""
        document = self.api.get(kind, name, self.namespace)
        owners = document["metadata"].get("ownerReferences", []) if document else []
        if document and self.owner.uid not in [owner["uid"] for owner in owners]:
            whose = ", ".join(f"{owner['kind']} {owner['name']}" for owner in owners) or "nobody"
            raise ObjectConflict(
                f"{kind.kind} {name} is there already and belongs to {whose}, not to this ElasticJob; delete it, or "
                "give this job another name"
            )
        return document

    def pod_owners(self) -> set[str]:
        """The master's set and the spec, if they are of this resource."""
        owners = set()
        for kind, name in ((kinds.STATEFUL_SET, self.master_name), (kinds.CONFIG_MAP, f"{self.name}-spec")):
            with suppress(ObjectConflict):
                if (document := self.find_owned(kind, name)) is not None:
                    owners.add(document["metadata"]["uid"])
        return owners
