"""Whether a dead master is restarted."""

from __future__ import annotations

import signal

import pytest

from elasticdl.errors import JournalDamaged
from elasticdl.launcher.interface import ExitedProcess
from elasticdl.launcher.local.restart_policy import GiveUp, Restart, RestartPolicy


def death(ended_at: float, *, code: int | None = None, killed_by: int | None = None) -> ExitedProcess:
    return ExitedProcess("master", 7, code, killed_by, ended_at)


def test_a_master_killed_while_serving_always_comes_back() -> None:
    policy = RestartPolicy(limit=2)

    decisions = {policy.decide(death(now, killed_by=signal.SIGKILL), served=True) for now in range(50)}

    assert decisions == {Restart()}


def test_a_master_that_never_serves_is_abandoned_after_the_limit() -> None:
    policy = RestartPolicy(limit=3, window_s=60)

    decisions = [policy.decide(death(now, code=1), served=False) for now in range(3)]

    assert decisions[:2] == [Restart(), Restart(0.5)]
    assert decisions[2] == GiveUp("the master ended 3 times within 60 s, last: exited with code 1", 1)


def test_a_master_that_serves_and_always_crashes_is_abandoned_too() -> None:
    policy = RestartPolicy(limit=2)

    assert policy.decide(death(0, code=1), served=True) == Restart()
    assert isinstance(policy.decide(death(1, killed_by=signal.SIGSEGV), served=True), GiveUp)


def test_each_pause_is_twice_as_long_as_the_one_before() -> None:
    policy = RestartPolicy(limit=6, pause_s=0.5)

    decisions = [policy.decide(death(now, code=1), served=True) for now in range(5)]

    assert decisions == [Restart(0.0), Restart(0.5), Restart(1.0), Restart(2.0), Restart(4.0)]


def test_deaths_long_ago_are_forgotten() -> None:
    policy = RestartPolicy(limit=2, window_s=10)

    assert policy.decide(death(0, code=1), served=False) == Restart()
    assert policy.decide(death(11, code=1), served=False) == Restart()


def test_deaths_before_the_clock_went_back_are_forgotten() -> None:
    policy = RestartPolicy(limit=2, window_s=10)

    assert policy.decide(death(86_400, code=1), served=False) == Restart()
    assert policy.decide(death(5, code=1), served=False) == Restart()


def test_a_master_with_a_wrong_job_is_not_restarted() -> None:
    decision = RestartPolicy(limit=9).decide(death(0, code=2), served=False)

    assert decision == GiveUp("the master refused the job", 2)


@pytest.mark.parametrize(
    ("exited", "description"),
    [
        (death(0, code=3), "exited with code 3"),
        (death(0, killed_by=9), "killed by signal 9"),
        (death(0), "ended, exit code unknown"),
    ],
)
def test_the_description_says_how_a_process_ended(exited: ExitedProcess, description: str) -> None:
    assert exited.description == description


def test_a_master_that_refuses_its_journal_is_abandoned_at_once() -> None:
    decision = RestartPolicy().decide(
        death(0, code=JournalDamaged(12, "a record has a wrong checksum").exit_code), served=True
    )

    assert decision == GiveUp("the master refused its journal", 1)
