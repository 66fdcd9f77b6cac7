from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticdl import __version__
from elasticdl.cli.verbs import journal
from elasticdl.jobs import home
from elasticdl.journal_frames import FrameEncoder, JournalWriterInfo
from elasticdl.launcher.local import job_directory
from elasticdl.master.machine import events as ev
from elasticdl.master.runtime import codec
from elasticdl.master.runtime.replay import StoredJournal, verify_journal
from tests.unit.cli.conftest import Run
from tests.unit.master.driver import job_spec

EVENTS: list[Any] = [
    ev.MasterStarted(7),
    ev.ReplicaStarted("worker-0", 5),
    ev.ScaleRequested(2),
    ev.StopRequested(False, "enough"),
]


def stream(run: int = 1, version: str = __version__, *more: bytes) -> tuple[bytes, list[int]]:
    encoder = FrameEncoder(JournalWriterInfo(run, version))
    content, ends = encoder.begin_stream(), list[int]()
    for number, event in enumerate(EVENTS):
        content += encoder.encode_records([codec.encode_event(event, 1000.0 + number)])
        ends.append(len(content))
    return content + b"".join(encoder.encode_records([record]) for record in more), ends


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path))
    directory = home.job_directory("job")
    job_directory.create_job_directory(directory, job_spec())
    directory.journal.write_bytes(stream()[0])
    return directory.journal


def test_a_complete_journal_is_reported_as_complete(elasticdl: Run, path: Path) -> None:
    done = elasticdl("journal", "verify", "job")

    assert done.exit_code == 0, done.output
    assert f"journal of job: {path}" in done.output and f"run 1, last written by ElasticDL {__version__}" in done.output
    assert "whole: 4 events until " in done.output


def test_an_incomplete_last_write_is_not_damage(elasticdl: Run, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])

    done = elasticdl("journal", "verify")

    assert done.exit_code == 0, done.output
    assert "whole: 3 events" in done.output and "of a write that was cut off or is under way" in done.output


@pytest.mark.parametrize("at", [0, 20], ids=["in the head of a frame", "in its content"])
def test_damage_is_reported_with_the_lost_events_and_the_fix(elasticdl: Run, path: Path, at: int) -> None:
    content, ends = stream()
    damaged = bytearray(content)
    damaged[ends[0] + at] ^= 4
    path.write_bytes(damaged)

    done = elasticdl("journal", "verify", "job")

    assert done.exit_code == 1
    assert f"{path} is damaged at byte {ends[0]}: " in done.output
    assert "before that: 1 events until " in done.output
    assert "lost: 2 events that can be read behind it, until " in done.output
    assert "resume from the newest checkpoint: elasticdl train --resume --job_name=job" in done.output
    assert path.read_bytes() == damaged


def test_an_event_of_a_newer_version_names_it(elasticdl: Run, path: Path) -> None:
    path.write_bytes(stream(1, "99.1", b'[1.0,"WorkerTeleported",[]]')[0])

    done = elasticdl("journal", "verify", "job")

    assert done.exit_code == 1
    assert "was written by ElasticDL 99.1" in done.output and "WorkerTeleported" in done.output


def test_a_journal_whose_end_is_missing_is_detected_from_the_event_log(elasticdl: Run, path: Path) -> None:
    path.with_name("events.jsonl").write_text("{}\n" * 9)

    done = elasticdl("journal", "verify", "job")

    assert done.exit_code == 1
    assert "its end is missing: the event log has 9 entries, and it leads to " in done.output


def test_a_job_without_a_journal_says_so(elasticdl: Run, path: Path) -> None:
    path.unlink()

    done = elasticdl("journal", "verify", "job")

    assert (done.exit_code, "does not exist: no master of this job has begun yet" in str(done.output)) == (2, True)


def test_an_empty_journal_in_config_maps_is_complete() -> None:
    stored = StoredJournal("1 ConfigMaps", b"", can_be_torn=False)

    assert (
        journal.describe_verification("job", stored, job_spec(), verify_journal(stored, job_spec()))[-1]
        == "whole: 0 events"
    )


def test_a_missing_end_of_a_journal_in_config_maps_is_detected() -> None:
    assert verify_journal(StoredJournal("here", stream()[0][:-5], can_be_torn=False), job_spec()).problem is not None
