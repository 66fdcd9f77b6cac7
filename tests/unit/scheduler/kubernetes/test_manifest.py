"""The scheduler's account has exactly the rights that the scheduler needs."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

from elasticdl.kube.api import ALL_NAMESPACES
from elasticdl.kube.election import Election
from elasticdl.kube.errors import AlreadyExists
from elasticdl.kube.kinds import ELASTIC_JOB, LEASE, NODE, ResourceKind, kind_of
from elasticdl.scheduler.kubernetes import manifest, server
from elasticdl.scheduler.kubernetes.health import SchedulerHealth
from elasticdl.scheduler.kubernetes.namespace import NamespaceCluster
from elasticdl.scheduler.kubernetes.server import NamespaceSchedulerServer
from elasticdl.scheduler.policies.goodput.policy import GoodputPolicy
from tests.unit.scheduler.kubernetes.test_capacity import SLOT, node
from tests.unit.scheduler.kubernetes.test_namespace import Memory, elastic, spec

WIDE, OWN = "the cluster", "here"
Used = tuple[str, str, str]  # where, verb, resource


class Counted(Memory):
    """Remembers its requests in the terms of roles."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[Used] = set()
        self.leases: dict[str, dict[str, Any]] = {}
        self.renewed = threading.Event()

    def _use(self, verb: str, kind: ResourceKind, namespace: str) -> None:
        where = OWN if namespace == OWN else WIDE
        resource = f"{kind.group}/{kind.plural}" if kind.group else kind.plural
        self.used.add((where, verb, resource))

    def list(self, kind: ResourceKind, namespace: str = "", labels: str = "", fields: str = "") -> Any:
        self._use("list", kind, namespace)
        return super().list(kind, {"pods": ALL_NAMESPACES}.get(kind.plural, namespace), labels)

    def watch(self, kind: ResourceKind, namespace: str, *_: Any) -> Any:
        self._use("watch", kind, namespace)
        return Silent()

    def patch(self, kind: ResourceKind, name: str, change: dict[str, Any], namespace: str) -> None:
        self._use("patch", kind, namespace)
        super().patch(kind, name, change, namespace)

    def get(self, kind: ResourceKind, name: str, namespace: str) -> Any:
        assert kind == LEASE, "nothing else is read by name"
        self._use("get", kind, namespace)
        return self.leases.get(name)

    def create(self, document: dict[str, Any]) -> Any:
        self._use("create", kind_of(document), document["metadata"]["namespace"])
        if document["metadata"]["name"] in self.leases:
            raise AlreadyExists("it is there")
        return self.leases.setdefault(document["metadata"]["name"], document)

    def replace(self, document: dict[str, Any]) -> Any:
        self._use("update", kind_of(document), document["metadata"]["namespace"])
        self.leases[document["metadata"]["name"]] = document
        self.renewed.set()
        return document


class Silent:
    """A watch that yields nothing until it is closed."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def __iter__(self) -> Iterator[Any]:
        self._closed.wait(20)
        return iter(())

    def close(self) -> None:
        self._closed.set()


def granted(documents: list[dict[str, Any]]) -> set[Used]:
    wheres = {"ClusterRole": WIDE, "Role": OWN}
    return {
        (wheres[document["kind"]], verb, f"{rule['apiGroups'][0]}/{resource}".lstrip("/"))
        for document in documents
        if document["kind"] in wheres
        for rule in document["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_its_rights_are_the_calls_it_makes_no_fewer_and_no_more() -> None:
    memory = Counted()
    memory.objects[NODE] = [node("a")]
    memory.objects[ELASTIC_JOB] = [elastic("j")]
    election = Election(memory, server.LEASE_NAME, "here", "me", lease_s=0.75)  # type: ignore[arg-type]

    pulse = SchedulerHealth()

    def make() -> NamespaceSchedulerServer:
        cluster = NamespaceCluster(memory, "here", SLOT, lambda: election.is_leader)  # type: ignore[arg-type]
        return NamespaceSchedulerServer(GoodputPolicy(), cluster, 0.0, pulse)

    async def served() -> None:
        serving = asyncio.create_task(server.lead_and_serve(make, election, pulse, [signal.SIGUSR1]))
        watched = {"pods", "nodes", "elasticdl.org/elasticjobs"}
        async with asyncio.timeout(20):
            while not memory.renewed.is_set() or spec(memory, "j")[0] != 4 or len(_watched(memory)) < len(watched):
                assert not serving.done(), serving.result()
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGUSR1)
            await serving
        assert _watched(memory) == watched

    asyncio.run(served())

    used = memory.used - {(OWN, "list", "pods")}  # which the right to list those of all namespaces includes
    assert used == granted(manifest.scheduler_objects("here", "image", []))
    assert memory.leases[server.LEASE_NAME]["spec"]["holderIdentity"] == "", "it was left to whoever waits"


def _watched(memory: Counted) -> set[str]:
    return {resource for _, verb, resource in memory.used if verb == "watch"}


def test_the_lease_is_the_only_one_it_may_read_and_write() -> None:
    (role,) = (document for document in manifest.scheduler_objects("here", "image", []) if document["kind"] == "Role")
    (held,) = (rule for rule in role["rules"] if "resourceNames" in rule)

    assert (held["resources"], held["verbs"], held["resourceNames"]) == (
        ["leases"],
        ["get", "update"],
        [server.LEASE_NAME],
    )


def test_two_namespaces_have_no_object_in_common() -> None:
    names = [
        {
            (document["kind"], document["metadata"].get("namespace", ""), document["metadata"]["name"])
            for document in objects
        }
        for objects in (manifest.scheduler_objects("a", "image", []), manifest.scheduler_objects("b", "image", []))
    ]

    assert names[0].isdisjoint(names[1])


def test_what_is_left_of_a_plan_is_not_written_by_one_that_leads_no_longer() -> None:
    memory, left = Memory(), iter([True, False])
    memory.objects[NODE] = [node("a")]
    memory.objects[ELASTIC_JOB] = [elastic("j"), elastic("k")]
    here = NamespaceCluster(memory, "here", SLOT, lambda: next(left))  # type: ignore[arg-type]

    plan = GoodputPolicy().decide(here.snapshot(1e10), None).plan
    here.apply(plan, 1e10)

    assert len(memory.patched) == 1
