from __future__ import annotations

import json
import resource
import signal
from pathlib import Path

import pytest

from elasticdl.master.machine.actions import EventLogEntry, WriteLogEntry
from elasticdl.master.runtime.event_log import EventLog


def entries(*numbers: int) -> list[WriteLogEntry]:
    return [
        WriteLogEntry(number, EventLogEntry(float(number), "worker-lost", "worker-1", "killed", 2, 30, 0.1))
        for number in numbers
    ]


def write_log(path: Path, *numbers: int) -> None:
    """Writes entries as a master that has just started does."""
    event_log = EventLog(path)
    event_log.open()
    event_log.write(entries(*numbers))
    event_log.close()


def entry_times(path: Path) -> list[float]:
    return [json.loads(line)["at"] for line in path.read_text().splitlines()]


def test_a_line_has_all_fields_of_its_entry(tmp_path: Path) -> None:
    write_log(tmp_path / "events.jsonl", 1)

    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()

    assert json.loads(line) == {
        "at": 1.0,
        "kind": "worker-lost",
        "replica": "worker-1",
        "reason": "killed",
        "round": 2,
        "step": 30,
        "cost_s": 0.1,
    }


def test_the_line_of_an_evaluation_has_its_metrics(tmp_path: Path) -> None:
    event_log = EventLog(tmp_path / "events.jsonl")
    event_log.open()
    entry = EventLogEntry(1.0, "evaluation", "", "accuracy 0.5", 2, 30, 0.0, {"accuracy": 0.5})

    event_log.write([WriteLogEntry(1, entry)])
    event_log.close()

    assert json.loads((tmp_path / "events.jsonl").read_text())["metrics"] == {"accuracy": 0.5}


def test_a_restarted_master_writes_only_missing_entries(tmp_path: Path) -> None:
    write_log(tmp_path / "events.jsonl", 1, 2)

    write_log(tmp_path / "events.jsonl", 1, 2, 3)

    assert entry_times(tmp_path / "events.jsonl") == [1.0, 2.0, 3.0]


def test_a_torn_line_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write_log(path, 1, 2)
    path.write_bytes(path.read_bytes()[:-5])

    write_log(path, 1, 2)

    assert entry_times(path) == [1.0, 2.0]


def test_a_line_that_fits_on_the_disk_in_part_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    event_log = EventLog(path)
    event_log.open()
    event_log.write(entries(1))
    limit, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, limit[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            event_log.write(entries(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)

    event_log.write(entries(2, 3))
    event_log.close()

    assert entry_times(path) == [1.0, 2.0, 3.0]
