"""The reasons of exits."""

from __future__ import annotations

import pytest

from elasticdl.master.machine.events import ReplicaExit
from elasticdl.master.machine.membership import classify_exit


@pytest.mark.parametrize(
    ("failure", "last_words", "reason"),
    [
        ("", "", "crashed: exited with code 1 without an error message"),
        ("NaN", "thread server failed", "crashed: exited with code 1: NaN"),
        ("", "thread server failed", "crashed: exited with code 1: thread server failed"),
        ("", "exited with code 1", "crashed: exited with code 1 without an error message"),
        ("", "exited with code 1: thread server failed", "crashed: exited with code 1: thread server failed"),
    ],
    ids=["nothing", "to the master", "left behind", "of a pod", "of a pod, left behind"],
)
def test_a_crash_is_described_by_the_reported_failure_or_by_what_the_process_left_behind(
    failure: str, last_words: str, reason: str
) -> None:
    ended = ReplicaExit("ps-0", 7, 1, None, reason=last_words)

    cause = classify_exit(ended, is_leaving=False, reason="", failure=failure, log="LOG")

    assert cause.reason == f"{reason}; its log is LOG"
    assert cause.is_crash
