from __future__ import annotations

import asyncio

import pytest

from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.kube.election import Election


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def candidate(api: Api, identity: str, clock: FakeClock) -> Election:
    return Election(api, "operator", api.namespace, identity, lease_s=15.0, clock=clock)


def holder(api: Api) -> str:
    return str((api.get(kinds.LEASE, "operator") or {})["spec"]["holderIdentity"])


def test_a_candidate_is_the_leader_as_long_as_it_renews_the_lease(api: Api, clock: FakeClock) -> None:
    first, second = candidate(api, "first", clock), candidate(api, "second", clock)

    acquired = [(first.try_acquire(), second.try_acquire())]
    for _ in range(5):
        clock.now += 10.0
        acquired.append((first.try_acquire(), second.try_acquire()))

    assert acquired == [(True, False)] * 6
    assert holder(api) == "first"


def test_another_candidate_takes_over_when_the_lease_expires_by_its_own_clock(api: Api, clock: FakeClock) -> None:
    first, second = candidate(api, "first", clock), candidate(api, "second", clock)
    first.try_acquire()
    second.try_acquire()

    clock.now += 14.9
    before_expiry = second.try_acquire()
    clock.now += 0.2
    after_expiry = second.try_acquire()

    assert (before_expiry, after_expiry, first.try_acquire()) == (False, True, False)
    lease = api.get(kinds.LEASE, "operator") or {}
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("second", 2)


def test_one_of_two_candidates_that_write_at_the_same_time_wins(
    api: Api, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (candidate(api, name, clock) for name in ("first", "second", "third"))
    first.try_acquire()
    second.try_acquire()
    third.try_acquire()
    clock.now += 20.0
    get_lease = api.get

    def get_and_be_overtaken(*arguments: str) -> object:
        monkeypatch.setattr(api, "get", get_lease)
        lease = get_lease(*arguments)  # type: ignore[arg-type]
        assert third.try_acquire()
        return lease

    monkeypatch.setattr(api, "get", get_and_be_overtaken)

    assert not second.try_acquire()
    assert holder(api) == "third"


def test_a_released_lease_can_be_acquired_at_once(api: Api, clock: FakeClock) -> None:
    first, second = candidate(api, "first", clock), candidate(api, "second", clock)
    first.try_acquire()
    second.try_acquire()

    asyncio.run(second.release())  # it does not hold the Lease
    acquired_too_early = second.try_acquire()
    asyncio.run(first.release())

    assert not acquired_too_early
    assert second.try_acquire()
