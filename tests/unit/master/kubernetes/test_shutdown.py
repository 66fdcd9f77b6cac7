"""A master whose pod is taken away: who is told, and who is not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticdl.kube.kinds import STATEFUL_SET
from elasticdl.launcher.kubernetes.manifest import Owner
from elasticdl.master.kubernetes import shutdown
from elasticdl.master.runtime.loop import MasterLoop
from elasticdl.rpc import elasticdl_pb2 as pb
from tests.unit.cli.fake_api import FakeApi

LAUNCHER = object()


class Executor:
    """What a shutdown needs of the one of a master."""

    def __init__(self) -> None:
        self.launcher: object | None = LAUNCHER

    def detach_launcher(self) -> None:
        self.launcher = None


class Told:
    """A worker that goes when it is released, unless it is `deaf`."""

    def __init__(self, links: dict[str, Any], name: str, *, deaf: bool = False) -> None:
        self.messages: list[pb.MasterMessage] = []
        self._goes = (lambda: None) if deaf else (lambda: links.pop(name))

    def send(self, message: pb.MasterMessage) -> None:
        self.messages.append(message)
        asyncio.get_running_loop().call_soon(self._goes)


def loop_of(**deaf: bool) -> MasterLoop:
    links: dict[str, Any] = {}
    links.update({name: Told(links, name, deaf=is_deaf) for name, is_deaf in deaf.items()})
    ledger = SimpleNamespace(fleet=SimpleNamespace(ps={"ps-0": None}))
    machine = SimpleNamespace(state=SimpleNamespace(ledger=ledger))
    return cast(MasterLoop, SimpleNamespace(streams=links, executor=Executor(), machine=machine))


def test_a_master_that_will_be_replaced_tells_nobody() -> None:
    loop = loop_of(a=False)

    asyncio.run(shutdown.release_replicas(loop, lambda: False))

    assert list(loop.streams) == ["a"] and loop.executor.launcher is LAUNCHER


def test_who_belongs_to_a_deleted_job_is_released_and_nobody_is_launched_any_more() -> None:
    loop = loop_of(a=False, b=False)
    told = list(loop.streams.values())

    asyncio.run(shutdown.release_replicas(loop, lambda: True))

    assert [[one.WhichOneof("message") for one in each.messages] for each in cast(Any, told)] == [["release"]] * 2
    assert not loop.streams and loop.executor.launcher is None


def test_ps_are_released_when_the_workers_are_gone() -> None:
    """A worker that waits for an answer of its ps hears nothing else."""
    loop = loop_of(**{"worker-0": True, "ps-0": False})
    ps = cast(Any, loop.streams["ps-0"])  # type: ignore[index]

    asyncio.run(shutdown.release_replicas(loop, lambda: True, going_s=0.1))

    assert list(loop.streams) == ["worker-0", "ps-0"] and not ps.messages


def test_nobody_is_waited_for_beyond_measure() -> None:
    loop = loop_of(a=True)

    asyncio.run(shutdown.release_replicas(loop, lambda: True, going_s=0.1))

    assert list(loop.streams) == ["a"]


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    made.create(
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "digits-master"}, "spec": {"replicas": 1}}
    )
    return made


def test_nobody_follows_when_the_set_or_the_rights_are_gone_or_it_shall_have_no_pods(
    api: FakeApi,
) -> None:
    found = api.objects[STATEFUL_SET, "default", "digits-master"]
    owner = Owner.from_object(found)

    def is_last() -> bool:
        return shutdown.is_last_master(cast(Any, api), owner, "default")

    assert not is_last()
    found["metadata"]["deletionTimestamp"] = "2026-11-15T00:00:00Z"
    assert is_last()
    del found["metadata"]["deletionTimestamp"]
    found["spec"]["replicas"] = 0
    assert is_last()
    found["spec"]["replicas"] = 1
    found["metadata"]["uid"] = "another's"
    assert is_last()
    api.forbidden = {("get", "statefulsets")}
    assert is_last()
    api.forbidden = set()
    api.objects.clear()
    assert is_last()
