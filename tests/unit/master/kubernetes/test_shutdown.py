"""What a master does when its pod is deleted."""

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


class FakeExecutor:
    """The part of a master's executor that a shutdown uses."""

    def __init__(self) -> None:
        self.launcher: object | None = LAUNCHER

    def detach_launcher(self) -> None:
        self.launcher = None


class FakeStream:
    """The stream to a replica that ends when it is released, unless it hangs."""

    def __init__(self, streams: dict[str, Any], name: str, *, hangs: bool = False) -> None:
        self.messages: list[pb.MasterMessage] = []
        self._react = (lambda: None) if hangs else (lambda: streams.pop(name))

    def send(self, message: pb.MasterMessage) -> None:
        self.messages.append(message)
        asyncio.get_running_loop().call_soon(self._react)


def master_loop(**hangs: bool) -> MasterLoop:
    """A loop with a stream to each replica; True for one that hangs."""
    streams: dict[str, Any] = {}
    streams.update({name: FakeStream(streams, name, hangs=does_hang) for name, does_hang in hangs.items()})
    ledger = SimpleNamespace(fleet=SimpleNamespace(ps={"ps-0": None}))
    machine = SimpleNamespace(state=SimpleNamespace(ledger=ledger))
    return cast(MasterLoop, SimpleNamespace(streams=streams, executor=FakeExecutor(), machine=machine))


def test_a_master_that_will_be_replaced_releases_nobody() -> None:
    loop = master_loop(a=False)

    asyncio.run(shutdown.release_replicas(loop, lambda: False))

    assert list(loop.streams) == ["a"] and loop.executor.launcher is LAUNCHER


def test_replicas_of_a_deleted_job_are_released_and_none_is_launched_any_more() -> None:
    loop = master_loop(a=False, b=False)
    streams = list(loop.streams.values())

    asyncio.run(shutdown.release_replicas(loop, lambda: True))

    assert [[message.WhichOneof("message") for message in stream.messages] for stream in cast(Any, streams)] == [
        ["release"]
    ] * 2
    assert not loop.streams and loop.executor.launcher is None


def test_ps_are_released_when_the_workers_have_ended() -> None:
    """A worker that waits for a ps handles no messages."""
    loop = master_loop(**{"worker-0": True, "ps-0": False})
    ps = cast(Any, loop.streams["ps-0"])  # type: ignore[index]

    asyncio.run(shutdown.release_replicas(loop, lambda: True, release_timeout_s=0.1))

    assert list(loop.streams) == ["worker-0", "ps-0"] and not ps.messages


def test_a_replica_that_does_not_end_is_waited_for_with_a_timeout() -> None:
    loop = master_loop(a=True)

    asyncio.run(shutdown.release_replicas(loop, lambda: True, release_timeout_s=0.1))

    assert list(loop.streams) == ["a"]


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.create(
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "digits-master"}, "spec": {"replicas": 1}}
    )
    return api


def test_a_master_is_the_last_if_its_set_or_its_rights_are_deleted_or_it_is_scaled_to_zero(
    api: FakeApi,
) -> None:
    stateful_set = api.objects[STATEFUL_SET, "default", "digits-master"]
    owner = Owner.from_object(stateful_set)

    def is_last() -> bool:
        return shutdown.is_last_master(cast(Any, api), owner, "default")

    assert not is_last()
    stateful_set["metadata"]["deletionTimestamp"] = "2026-11-15T00:00:00Z"
    assert is_last()
    del stateful_set["metadata"]["deletionTimestamp"]
    stateful_set["spec"]["replicas"] = 0
    assert is_last()
    stateful_set["spec"]["replicas"] = 1
    stateful_set["metadata"]["uid"] = "another's"
    assert is_last()
    api.forbidden = {("get", "statefulsets")}
    assert is_last()
    api.forbidden = set()
    api.objects.clear()
    assert is_last()
