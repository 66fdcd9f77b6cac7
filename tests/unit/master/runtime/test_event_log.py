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


def log(path: Path, *numbers: int) -> None:
    events = EventLog(path)
    events.open()
    events.write(entries(*numbers))
    events.close()


def times(path: Path) -> list[float]:
    return [json.loads(line)["at"] for line in path.read_text().splitlines()]


def test_a_line_has_what_people_ask_for(tmp_path: Path) -> None:
    log(tmp_path / "events.jsonl", 1)

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
    events = EventLog(tmp_path / "events.jsonl")
    events.open()
    entry = EventLogEntry(1.0, "evaluation", "", "accuracy 0.5", 2, 30, 0.0, {"accuracy": 0.5})

    events.write([WriteLogEntry(1, entry)])
    events.close()

    assert json.loads((tmp_path / "events.jsonl").read_text())["metrics"] == {"accuracy": 0.5}


def test_a_restarted_master_writes_only_what_is_missing(tmp_path: Path) -> None:
    log(tmp_path / "events.jsonl", 1, 2)

    log(tmp_path / "events.jsonl", 1, 2, 3)

    assert times(tmp_path / "events.jsonl") == [1.0, 2.0, 3.0]


def test_a_torn_line_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log(path, 1, 2)
    path.write_bytes(path.read_bytes()[:-5])

    log(path, 1, 2)

    assert times(path) == [1.0, 2.0]


def test_a_disk_that_takes_half_a_line_gets_none(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = EventLog(path)
    events.open()
    events.write(entries(1))
    limit, before = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, limit[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            events.write(entries(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)

    events.write(entries(2, 3))
    events.close()

    assert times(path) == [1.0, 2.0, 3.0]
