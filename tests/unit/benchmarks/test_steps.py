"""What the benchmarks compute from the step files."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers import steps


def test_a_half_written_line_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "7.steps").write_bytes(b"1000000000 0\n2000000000 1\n30000")

    assert steps.read_steps(tmp_path) == {7: [1.0, 2.0]}


def test_a_gap_is_a_time_in_which_no_process_finished_a_step() -> None:
    times_by_pid = {1: [1.0, 2.0, 5.0], 2: [1.5, 3.5]}

    assert steps.longest_gap_s(times_by_pid, start=1.0, stop=9.0) == pytest.approx(1.5)


def test_a_gap_begins_with_the_last_step_before_the_disturbance() -> None:
    times_by_pid = {1: [1.0, 9.0, 10.0, 14.0, 15.0]}

    assert steps.longest_gap_s(times_by_pid, start=12.0, stop=16.0) == pytest.approx(4.0)


def test_steps_of_a_silenced_worker_do_not_count() -> None:
    times_by_pid = steps.ignore_processes({1: [1.0, 9.0], 2: [1.0, 2.0, 3.0]}, [2], after=1.5)

    assert steps.longest_gap_s(times_by_pid, start=1.5, stop=10.0) == pytest.approx(8.0)


def test_an_ordinary_step_is_measured_per_process_and_before_the_disturbance() -> None:
    times_by_pid = {1: [1.0, 1.1, 1.2, 9.0], 2: [1.05, 1.15, 1.25]}

    assert steps.ordinary_step_s(times_by_pid, start=0.0, stop=2.0) == pytest.approx(0.1)


def test_throughput_leaves_out_the_beginning() -> None:
    assert steps.steps_per_s({1: [0.0, 10.0, 10.5, 11.0]}, skip=1) == pytest.approx(2.0)
