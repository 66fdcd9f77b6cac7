from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import Action, WriteLogEntry
from elasticdl.master.strategies.rounds import MAX_TRANSFER_DELAY_S, DonorAssignment
from elasticdl.spec import WorkerId
from tests.unit.master.driver import Driver, log_kinds, running, sent_messages

A, B, C, D, E = (WorkerId(name) for name in "abcde")


def test_newcomers_get_the_donor_with_the_fewest_newcomers_and_keep_it() -> None:
    donors = DonorAssignment(assigned={D: B})

    assert donors.assign([C, D, E], [A, B]) == {C: A, D: B, E: A}


def test_a_donor_that_failed_for_any_newcomer_is_assigned_last() -> None:
    donors = DonorAssignment()
    donors.record_failure(A, D)

    assert donors.assign([D, E], [A, B]) == {D: B, E: B}
    assert donors.assign([D], [A]) == {D: A}, "there is no other holder"


def test_a_donor_is_kept_only_while_it_holds_the_state() -> None:
    donors = DonorAssignment(assigned={D: B})

    assert donors.assign([D], [A, C]) == {D: A}


def test_delays_begin_when_all_donors_have_failed_and_grow() -> None:
    donors = DonorAssignment()
    delays = []
    for donor in (A, B, A, B, A, B, A, B):
        donors.record_failure(donor, D)
        delays.append(donors.retry_delay_s(D, [A, B]))

    assert delays == [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0]
    donors.failures[A][D] = donors.failures[B][D] = 5000
    assert donors.retry_delay_s(D, [A, B]) == MAX_TRANSFER_DELAY_S


def test_a_successful_transfer_clears_the_failures_of_its_donor() -> None:
    donors = DonorAssignment()
    for donor, newcomer in ((A, E), (B, D), (B, E), (C, E)):
        donors.record_failure(donor, newcomer)
    donors.assigned = {D: A, E: B}
    donors.record_entered([A, B, D])

    assert donors == DonorAssignment(assigned={E: B}, failures={B: {E: 1}})


@given(
    st.lists(st.tuples(st.sampled_from([A, B, C]), st.sampled_from([D, E])), max_size=20),
    st.lists(st.sampled_from([A, B, C]), min_size=1, unique=True),
)
def test_every_newcomer_gets_a_holder_that_failed_for_it_least_often(
    failures: list[tuple[WorkerId, WorkerId]], holders: list[WorkerId]
) -> None:
    donors = DonorAssignment()
    for donor, newcomer in failures:
        donors.record_failure(donor, newcomer)
    for newcomer, donor in donors.assign([D, E], holders).items():
        counts = {holder: donors.failures.get(holder, {}).get(newcomer, 0) for holder in holders}
        assert counts[donor] == min(counts.values())
        assert (donors.retry_delay_s(newcomer, holders) == 0.0) == (counts[donor] == 0)


# ---- in a whole job


def fail(driver: Driver, newcomer: str, donor: str, reason: str = "connection refused") -> list[Action]:
    event = ev.RoundFailed(WorkerId(newcomer), driver.sequence(newcomer), driver.newest.id, reason, donor)
    return driver.do(event)


def donor_of(driver: Driver, newcomer: str) -> str:
    return next(member.donor for member in driver.newest.members if member.worker == newcomer)


def reasons(actions: list[Action]) -> list[str]:
    return [
        action.entry.reason
        for action in actions
        if isinstance(action, WriteLogEntry) and action.entry.kind == "state-transfer-failed"
    ]


def test_a_newcomer_whose_donor_does_not_answer_gets_another_one_at_once() -> None:
    driver = running(2)
    driver.join("worker-2")
    assert donor_of(driver, "worker-2") == "worker-0"

    actions = fail(driver, "worker-2", "worker-0")
    assert reasons(actions) == ["got no state from worker-0: connection refused; worker-1 is asked instead"]
    assert sent_messages(actions, "worker-2", "reset")
    assert driver.newest.workers == ("worker-0", "worker-1") and not driver.newest.is_forced, "no worker waits for it"
    driver.ready("worker-2")

    assert donor_of(driver, "worker-2") == "worker-1"
    driver.enter(step=5)
    assert driver.state_of("worker-2") == "member"
    assert driver.machine.state.ledger.rounds.donors == DonorAssignment()
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_other_newcomers_do_not_get_the_donor_that_does_not_answer_either() -> None:
    driver = running(2)
    driver.join("worker-2")
    fail(driver, "worker-2", "worker-0")
    driver.join("worker-3")

    assert donor_of(driver, "worker-3") == "worker-1"


def test_the_only_donor_is_tried_again_with_growing_delays() -> None:
    driver = running(1)
    driver.join("worker-1")
    retries = []
    for pause_s in (1.0, 2.0, 4.0):
        retries += reasons(fail(driver, "worker-1", "worker-0", "it gave up"))
        driver.ready("worker-1")
        assert driver.newest.workers == ("worker-0",)
        for _ in range(int(pause_s / 0.25) - 1):
            driver.now += 0.25
            driver.do(driver.heartbeat("worker-0"), driver.heartbeat("worker-1"))
        assert driver.newest.workers == ("worker-0",), "it pauses"
        driver.wait(0.3)
        assert len(driver.newest.workers) == 2

    assert retries[0] == "got no state from worker-0: it gave up; no other worker has it, tried again in 1 s"
    assert [text.rpartition(" in ")[2] for text in retries] == ["1 s", "2 s", "4 s"]
    driver.enter(step=9)
    assert driver.state_of("worker-1") == "member"


def test_the_only_holder_leaves_before_a_transfer_and_its_round_was_not_entered() -> None:
    driver = running(1)
    driver.leave("worker-0")
    driver.join("worker-1")
    assert driver.newest.workers == ("worker-1",)
    fail(driver, "worker-1", "worker-0", "connection refused")

    actions = driver.goodbye("worker-0", "left at the next round")
    driver.exit("worker-0", code=0)
    driver.ready("worker-1")
    driver.wait(2.0)

    assert "worker-joined" not in log_kinds(actions)
    assert driver.newest.is_forced and driver.newest.workers == ("worker-1",), "from the newest checkpoint"


def test_the_same_holds_if_the_newcomer_reports_it_after_the_goodbye() -> None:
    driver = running(1)
    driver.leave("worker-0")
    driver.join("worker-1")
    driver.goodbye("worker-0", "left at the next round")
    driver.exit("worker-0", code=0)

    fail(driver, "worker-1", "worker-0", "connection refused")
    driver.wait(2.0)

    assert driver.newest.is_forced and driver.newest.workers == ("worker-1",)


def test_a_failure_of_a_donor_that_was_replaced_meanwhile_does_not_count() -> None:
    driver = running(2)
    driver.join("worker-2")
    actions = fail(driver, "worker-2", "worker-1")

    assert log_kinds(actions)[:1] == ["worker-returned"]
    assert driver.machine.state.ledger.rounds.donors.failures == {}


def test_a_transfer_continues_with_its_donor_after_a_forced_round() -> None:
    driver = running(3, max_workers=5, ranks=8)
    driver.join("worker-3", "worker-4")
    assert donor_of(driver, "worker-4") == "worker-1"
    driver.exit("worker-0", signal=9)
    assert driver.newest.is_forced
    driver.enter(step=6)

    assert donor_of(driver, "worker-4") == "worker-1"
    assert donor_of(driver, "worker-3") == "worker-2"


def test_a_newcomer_that_freezes_while_it_enters_is_lost_and_the_others_continue() -> None:
    driver = running(1)
    driver.join("worker-1")
    entered = driver.newest.id
    driver.beat("worker-0", step=5, in_round=1)
    seated = driver.heartbeat("worker-0", step=5, in_round=1)._replace(joined_round=entered)
    for _ in range(20):
        driver.now += 0.25
        driver.do(seated)

    assert driver.state_of("worker-1") == "lost"
    assert driver.newest.is_forced and driver.newest.workers == (WorkerId("worker-0"),)


def test_a_superseded_round_that_all_members_enter_counts_as_entered() -> None:
    driver = running(1)
    driver.join("worker-1")
    entered = driver.newest.id
    driver.join("worker-2")
    assert driver.newest.id == entered + 1 and not driver.newest.is_forced
    driver.do(driver.heartbeat("worker-0", step=5, in_round=1)._replace(joined_round=entered))
    assert driver.machine.state.ledger.rounds.holders == ["worker-0", "worker-1"]
    driver.exit("worker-1", signal=9)

    assert driver.newest.is_forced and driver.newest.workers == (WorkerId("worker-0"),)
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()
