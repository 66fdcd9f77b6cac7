"""An ElasticJob during one reconciliation: the resource, the objects it owns, and its new conditions."""

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
    """An object of this name belongs to something else. A user may have to delete it."""


class MasterSnapshot(NamedTuple):
    """Everything that a reconciliation reads of the master; if it is unchanged, there is nothing to reconcile."""

    uid: str
    replicas: int
    is_ready: bool
    is_being_deleted: bool


def master_snapshot(master: Document | None) -> MasterSnapshot | None:
    if master is None:
        return None
    is_ready = (master.get("status") or {}).get("readyReplicas", 0) > 0
    is_being_deleted = "deletionTimestamp" in master["metadata"]
    return MasterSnapshot(master["metadata"]["uid"], master["spec"]["replicas"], is_ready, is_being_deleted)


@dataclass
class ElasticJobContext:
    """One ElasticJob, with access to its objects and its events."""

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
        """The desired number of pods of the master while the job is not over."""
        return 0 if self.resource["spec"].get("suspend") else 1

    @property
    def owner(self) -> naming.Owner:
        return naming.Owner.from_object(self.resource)

    def find_owned(self, kind: kinds.ResourceKind, name: str) -> Document | None:
        """The object, or None if there is none. Raises ObjectConflict if it does not belong to this ElasticJob."""
        document = self.api.get(kind, name, self.namespace)
        owners = document["metadata"].get("ownerReferences", []) if document else []
        if document and self.owner.uid not in [owner["uid"] for owner in owners]:
            owner_names = ", ".join(f"{owner['kind']} {owner['name']}" for owner in owners)
            raise ObjectConflict(
                f"{kind.kind} {name} exists already and belongs to {owner_names or 'nobody'}, not to this ElasticJob; "
                "delete it, or give this job another name"
            )
        return document

    def pod_owners(self) -> set[str]:
        """UIDs of the objects that own the pods: the master's StatefulSet and the ConfigMap of the spec."""
        owners = set()
        for kind, name in ((kinds.STATEFUL_SET, self.master_name), (kinds.CONFIG_MAP, f"{self.name}-spec")):
            with suppress(ObjectConflict):
                if (document := self.find_owned(kind, name)) is not None:
                    owners.add(document["metadata"]["uid"])
        return owners
