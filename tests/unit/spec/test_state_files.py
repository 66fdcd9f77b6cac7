"""Files that a job keeps: as they were written, or refused; a flipped bit never changes what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.errors import MasterUnreachable, SpecError, StateDamaged
from elasticdl.launcher.interface import RunningProcess
from elasticdl.launcher.local.record import LauncherRecord, is_running, lock_job
from elasticdl.rpc import channel
from elasticdl.scheduler.accounts.report import SchedulerReport
from elasticdl.scheduler.local.queue import SubmissionQueue
from elasticdl.spec.directory import JobDirectory, read_json, write_json
from tests.unit.master.driver import job_spec

DOCUMENT = {"phase": "stopped", "step": 640, "loss": 0.25, "workers": [{"id": "worker-0", "rank": 0}], "metrics": {}}


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    path.write_bytes(content)


def damage(path: Path) -> None:
    content = path.read_text()
    path.write_text(content.replace("1", "7", 1) if "1" in content else content.replace("0", "7", 1))


@given(bit=st.integers(0))
def test_a_flipped_bit_never_changes_what_a_file_says(bit: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("state") / "result.json"
    write_json(path, DOCUMENT)
    assert read_json(path) == DOCUMENT
    flip(path, bit)

    try:
        document = read_json(path)
    except StateDamaged:
        return
    # In white space, or in the name of the checksum itself.
    assert document is not None and {key: document[key] for key in DOCUMENT} == DOCUMENT


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1', "\0" * 40])
def test_what_is_no_document_is_damaged(tmp_path: Path, content: str) -> None:
    (tmp_path / "result.json").write_text(content)

    with pytest.raises(StateDamaged, match=r"result\.json is damaged"):
        read_json(tmp_path / "result.json")


def test_keys_that_are_numbers_are_read_as_texts(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"speeds": {10: 1.5, 9: 2.5}})

    assert read_json(tmp_path / "a.json") == {"speeds": {"10": 1.5, "9": 2.5}}


def test_a_damaged_description_names_the_way_out(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path / "job")
    directory.create(job_spec())
    assert directory.load_spec() == job_spec()
    damage(directory.spec)

    with pytest.raises(SpecError, match=r"spec\.json is damaged: .*under another name.*--checkpoint_dir"):
        directory.load_spec()


def test_a_damaged_address_is_that_of_a_master_that_is_away(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    write_json(directory.master, {"address": "127.0.0.1:4711"})
    damage(directory.master)

    with pytest.raises(MasterUnreachable, match="the next master of the job writes it again"):
        channel.master_address(directory)


def test_of_a_job_with_a_damaged_record_the_lock_tells_whether_it_is_kept(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    LauncherRecord(RunningProcess("launcher", 10, 1.0, 100)).save(directory.launcher)
    damage(directory.launcher)

    assert LauncherRecord.load(directory.launcher) is None
    assert not is_running(directory)
    with lock_job(directory, wait=False):
        assert is_running(directory)


def test_a_damaged_report_of_the_scheduler_is_as_none(tmp_path: Path) -> None:
    report = SchedulerReport(1.0, "afs", {"here": 4})
    queue = SubmissionQueue(tmp_path)
    queue.report_path.parent.mkdir(parents=True, exist_ok=True)
    queue.save_report(report)
    assert queue.load_report() == report
    damage(queue.report_path)

    assert queue.load_report() is None
