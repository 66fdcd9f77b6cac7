"""Leases: evaluations during training, and jobs that only take leases."""

from __future__ import annotations

import math
import signal

import pytest

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import Action, RecordMetrics
from elasticdl.master.views.status import job_status
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobKind, WorkerId
from tests.unit.master.driver import Driver, job_spec, log_kinds, running, sent_messages, sent_signals

Sums = tuple[tuple[str, tuple[float, ...], float], ...]


def report_end(lease: int, records: int = 10, sums: Sums = ()) -> ev.LeaseReport:
    return ev.LeaseReport(lease, records, True, "", sums)


def predicting(records: int = 25, workers: int = 2) -> Driver:
    driver = Driver(job_spec(kind=JobKind.PREDICTION, workers=workers))
    driver.join(*(f"worker-{number}" for number in range(workers)))
    driver.plan("worker-0", records=records, steps=0)
    return driver


def evaluating(workers: int = 2, records: int = 25) -> Driver:
    driver = running(workers)
    driver.plan("worker-0", records=800, validation=records)
    for number in range(workers):
        driver.snapshot(f"worker-{number}", 50)
    return driver


def test_a_prediction_job_succeeds_when_it_is_drained() -> None:
    driver = predicting()
    first = driver.exchange("worker-0", 1, want=2)
    second = driver.exchange("worker-1", 1)
    driver.exchange("worker-0", 2, *(report_end(lease.id) for _, _, lease in first.leases), want=0)
    assert driver.phase == "running"

    driver.exchange("worker-1", 2, report_end(second.leases[0][2].id, 5), want=0)

    assert driver.phase == "succeeded"
    assert driver.machine.state.ledger.records == 25


def test_the_first_plan_wins() -> None:
    driver = predicting(records=25)

    driver.plan("worker-1", records=99)

    assert driver.machine.state.ledger.evaluations.open[0].queue.records == 25


def test_an_evaluation_job_reports_the_step_of_the_evaluated_weights() -> None:
    driver = Driver(job_spec(kind=JobKind.EVALUATION, workers=1))
    driver.join("worker-0")
    driver.plan("worker-0", records=25, steps=160)

    assert list(driver.machine.state.ledger.evaluations.open) == [160]


def test_data_without_records_is_a_wrong_job() -> None:
    driver = predicting(records=0)

    assert driver.phase == "failed"
    assert "at least one record" in driver.reason


def test_an_exchange_before_the_plan_is_known_waits() -> None:
    driver = Driver(job_spec(kind=JobKind.PREDICTION, workers=1))
    driver.join("worker-0")

    answer = driver.exchange("worker-0", 1)

    assert not answer.leases and not answer.is_drained


def test_a_repeated_request_gets_the_same_leases_again() -> None:
    driver = predicting()

    assert driver.exchange("worker-0", 1) == driver.exchange("worker-0", 1)
    assert driver.machine.state.ledger.evaluations.open[0].queue.next_shard == 1


def test_an_older_request_gets_nothing() -> None:
    driver = predicting()
    driver.exchange("worker-0", 2)

    assert not driver.exchange("worker-0", 1).leases


def test_a_lost_workers_leases_are_given_to_the_next() -> None:
    driver = predicting()
    first = driver.exchange("worker-0", 1)
    driver.exchange("worker-0", 2, ev.LeaseReport(first.leases[0][2].id, 4, False, "", ()), want=0)

    driver.exit("worker-0", signal=signal.SIGKILL)
    lease = driver.exchange("worker-1", 1).leases[0][2]

    assert (lease.shard, lease.done) == (0, 4)


def test_a_lease_does_not_expire_while_the_master_is_away() -> None:
    driver = evaluating()
    driver.exchange("worker-0", 1)
    away_s, lease_s = 1000.0, driver.machine.state.spec.timing.lease_s

    driver.now += away_s
    restarted = driver.do(ev.MasterStarted(9))
    assert "lease-expired" not in log_kinds(restarted)
    assert "lease-expired" not in log_kinds(driver.wait(lease_s - 1.0))

    assert "lease-expired" in log_kinds(driver.wait(2.0))


def test_a_lease_without_progress_expires_and_is_tried_again() -> None:
    driver = predicting()
    driver.exchange("worker-0", 1)
    actions = []
    for _ in range(60):
        driver.now += 1.0
        actions += driver.do(*(driver.heartbeat(worker) for worker in ("worker-0", "worker-1")))

    assert log_kinds(actions)[:3] == ["worker-stalled", "lease-expired", "worker-lost"]
    assert sent_messages(actions, "worker-0", "dump_stacks")
    assert sent_signals(actions) == [("worker-0", signal.SIGKILL)], "it would hold the next lease forever, too"
    assert driver.exchange("worker-1", 1).leases[0][2].attempt == 2
    assert driver.machine.state.ledger.failure_budget.spent == 1
    assert driver.replayed().dump_ledger() == driver.machine.dump_ledger()


def test_a_worker_whose_evaluation_hangs_while_it_trains_is_replaced_after_the_limit() -> None:
    driver = running(2)
    driver.plan("worker-0", records=1000, validation=20)
    driver.snapshot("worker-0", 1)
    driver.exchange("worker-0", 1)

    def train(seconds: int) -> list[Action]:
        actions = []
        for _ in range(seconds):
            driver.now += 1.0
            beats = [driver.heartbeat(worker, step=int(driver.now)) for worker in ("worker-0", "worker-1")]
            actions += driver.do(*(beat._replace(activity=pb.EXCHANGING) for beat in beats))
        return actions

    actions = train(60)
    assert [kind for kind in log_kinds(actions) if kind != "epoch-ended"] == ["lease-expired"]
    assert sent_messages(actions, "worker-0", "dump_stacks")
    assert not sent_signals(train(299))
    assert sent_signals(train(2)) == [("worker-0", signal.SIGKILL)]
    assert driver.phase == "running"


def test_a_shard_that_fails_on_every_worker_ends_the_job_and_is_named() -> None:
    driver = predicting()
    for request in range(1, 4):
        lease = driver.exchange("worker-0", 2 * request).leases[0][2]
        failed = ev.LeaseReport(lease.id, 0, False, "ValueError: row 3", ())
        driver.exchange("worker-0", 2 * request + 1, failed, want=0)

    assert driver.phase == "failed"
    assert "prediction[0:10]" in driver.reason and "row 3" in driver.reason


def test_metrics_do_not_depend_on_which_worker_computed_which_shard() -> None:
    parts = {0: 0.1, 1: 0.2, 2: 1e16, 3: -1e16}
    accuracies = set()
    for order in ((0, 1, 2, 3), (3, 1, 0, 2), (2, 0, 3, 1)):
        driver = evaluating(records=40)
        leases = {lease.shard: lease for _, _, lease in driver.exchange("worker-0", 1, want=4).leases}
        for request, shard in enumerate(order, start=2):
            report = report_end(leases[shard].id, sums=(("accuracy", (parts[shard],), 10.0),))
            driver.exchange("worker-0", request, report, want=0)
        accuracies.add(driver.machine.state.ledger.evaluations.results[50]["accuracy"])

    assert accuracies == {math.fsum(parts.values()) / 40}


def test_the_result_of_an_evaluation_goes_to_all_members() -> None:
    driver = evaluating(records=5)
    lease = driver.exchange("worker-1", 1).leases[0][2]
    report = report_end(lease.id, 5, (("accuracy", (4.0,), 5.0),))

    actions = driver.do(ev.ExchangeReceived(WorkerId("worker-1"), 2, (report,), 0, ()))

    assert sent_messages(actions, "worker-0", "evaluation")[0].evaluation.metrics["accuracy"] == 0.8
    assert RecordMetrics(50, {"accuracy": 0.8}) in actions
    assert driver.phase == "running"


def test_only_holders_of_the_weights_take_leases_of_an_evaluation() -> None:
    driver = running(2)
    driver.plan("worker-0", records=800, validation=25)
    driver.snapshot("worker-0", 50)

    assert not driver.exchange("worker-1", 1).leases
    assert driver.exchange("worker-0", 1).leases


def test_an_evaluation_whose_weights_no_worker_holds_is_abandoned_and_logged() -> None:
    driver = running(2)
    driver.plan("worker-0", records=800, validation=25)
    driver.snapshot("worker-0", 50)

    actions = driver.exit("worker-0", signal=signal.SIGKILL)

    assert "evaluation" in log_kinds(actions)
    assert not driver.machine.state.ledger.evaluations.open


def test_the_result_of_a_step_that_was_evaluated_before_is_sent_at_once() -> None:
    driver = evaluating(records=5)
    lease = driver.exchange("worker-0", 1).leases[0][2]
    driver.exchange("worker-0", 2, report_end(lease.id, 5, (("accuracy", (4.0,), 5.0),)), want=0)

    actions = driver.snapshot("worker-1", 50)

    assert sent_messages(actions, "worker-1", "evaluation")
    assert not driver.machine.state.ledger.evaluations.open


def test_a_result_is_sent_once_and_again_to_workers_that_were_away() -> None:
    driver = evaluating(records=5)
    driver.do(ev.SessionLost(WorkerId("worker-1")))
    lease = driver.exchange("worker-0", 1).leases[0][2]
    driver.exchange("worker-0", 2, report_end(lease.id, 5, (("accuracy", (4.0,), 5.0),)), want=0)

    assert sent_messages(driver.connect("worker-1"), "worker-1", "evaluation")
    assert not sent_messages(driver.connect("worker-1"), "worker-1", "evaluation")
    assert not sent_messages(driver.connect("worker-0"), "worker-0", "evaluation")


@pytest.mark.parametrize("gone", ["worker-9", "worker-1"])
def test_unknown_and_lost_workers_get_no_leases(gone: str) -> None:
    driver = predicting()
    driver.exit("worker-1", signal=signal.SIGKILL)

    assert not driver.exchange(gone, 1).leases


def test_the_event_log_has_the_metrics_of_an_evaluation_as_numbers() -> None:
    driver = evaluating(records=10)
    lease = driver.exchange("worker-0", 1).leases[0][2]

    driver.exchange("worker-0", 2, report_end(lease.id, sums=(("accuracy", (1.0,), 3.0),)), want=0)

    entry = driver.machine.state.ledger.recent_entries[-1]
    assert (entry.kind, entry.reason, entry.metrics) == ("evaluation", "accuracy 0.333333", {"accuracy": 1 / 3})
    status = job_status(driver.machine.state, driver.now)
    assert dict(status.events[-1].metrics) == {"accuracy": 1 / 3}


def test_a_state_with_a_metric_that_is_not_a_number_can_be_read_again() -> None:
    driver = evaluating(records=10)
    lease = driver.exchange("worker-0", 1).leases[0][2]
    driver.exchange("worker-0", 2, report_end(lease.id, sums=(("accuracy", (math.nan,), 3.0),)), want=0)

    dumped = driver.machine.dump_ledger()
    driver.machine.load_ledger(dumped)

    assert driver.machine.dump_ledger() == dumped
