from __future__ import annotations

import asyncio

import pytest

from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.kube.election import Election


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def candidate(api: Api, me: str, clock: Clock) -> Election:
    return Election(api, "operator", api.namespace, me, lease_s=15.0, clock=clock)


def holder(api: Api) -> str:
    return str((api.get(kinds.LEASE, "operator") or {})["spec"]["holderIdentity"])


def test_one_leads_as_long_as_it_renews(api: Api, clock: Clock) -> None:
    first, second = candidate(api, "first", clock), candidate(api, "second", clock)

    taken = [(first.try_acquire(), second.try_acquire())]
    for _ in range(5):
        clock.now += 10.0
        taken.append((first.try_acquire(), second.try_acquire()))

    assert taken == [(True, False)] * 6
    assert holder(api) == "first"


def test_another_takes_over_after_a_silence_by_its_own_clock(api: Api, clock: Clock) -> None:
    first, second = candidate(api, "first", clock), candidate(api, "second", clock)
    first.try_acquire()
    second.try_acquire()

    clock.now += 14.9
    early = second.try_acquire()
    clock.now += 0.2
    late = second.try_acquire()

    assert (early, late, first.try_acquire()) == (False, True, False)
    lease = api.get(kinds.LEASE, "operator") or {}
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("second", 2)


def test_of_two_that_write_at_once_one_wins(api: Api, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (candidate(api, name, clock) for name in ("first", "second", "third"))
    first.try_acquire()
    second.try_acquire()
    third.try_acquire()
    clock.now += 20.0
    read = api.get

    def read_and_be_overtaken(*asked: str) -> object:
        monkeypatch.setattr(api, "get", read)
        found = read(*asked)  # type: ignore[arg-type]
        assert third.try_acquire()
        return found

    monkeypatch.setattr(api, "get", read_and_be_overtaken)

    assert not second.try_acquire()
    assert holder(api) == "third"


def test_who_leaves_makes_way_at_once(api: Api, clock: Clock) -> None:
    first, second = candidate(api, "first", clock), candidate(api, "second", clock)
    first.try_acquire()
    second.try_acquire()

    asyncio.run(second.release())  # not its own to leave
    still = second.try_acquire()
    asyncio.run(first.release())

    assert not still
    assert second.try_acquire()
