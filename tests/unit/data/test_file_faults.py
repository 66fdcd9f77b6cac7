"""Files that are away, disks that fail, descriptors that run out, touches and changes."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticdl.data import availability
from elasticdl.data.files import inventory
from elasticdl.data.readers.tfrecord import write_tfrecord
from elasticdl.data.sources import open_source
from elasticdl.errors import DataError, DataUnavailable
from elasticdl.spec import DataSpec

NUMBERS = list(range(40))


def write_csv(path: Path, change: int = 0) -> None:
    path.write_text("x\n" + "".join(f"{number + change:03d}\n" for number in NUMBERS))


def write_json(path: Path, change: int = 0) -> None:
    path.write_text("".join(f'{{"x": {number + change + 100}}}\n' for number in NUMBERS))


def write_records(path: Path, change: int = 0) -> None:
    write_tfrecord(path, [f"{number + change:03d}".encode() for number in NUMBERS])


def write_parquet(path: Path, change: int = 0) -> None:
    pq.write_table(pa.table({"x": [number + change for number in NUMBERS]}), path, compression="none")


WRITERS: dict[str, Callable[[Path, int], None]] = {
    "a.csv": write_csv, "a.jsonl": write_json, "a.tfrecord": write_records, "a.parquet": write_parquet
}  # fmt: skip
EVERY = pytest.mark.parametrize("name", WRITERS)


@pytest.fixture
def waits() -> Iterator[list[str]]:
    heard: list[str] = []
    availability.set_wait_listener(
        lambda is_waiting, why: heard.append(f"{'waits' if is_waiting else 'is back'}: {why}")
    )
    yield heard
    availability.set_wait_listener(lambda is_waiting, why: None)


@EVERY
def test_a_file_that_is_away_for_a_while_is_waited_for(tmp_path: Path, name: str, waits: list[str]) -> None:
    path, away = tmp_path / name, tmp_path / "away"
    WRITERS[name](path, 0)
    source = open_source(str(path), DataSpec(), tmp_path / "index", run="1")
    path.rename(away)
    threading.Timer(1.5, away.rename, (path,)).start()

    assert len(source.read(np.array([3, 17]))) == 2
    assert [line.partition(":")[0] for line in waits] == ["waits", "is back"]
    assert name in waits[0] and "No such file" in waits[0]


@EVERY
def test_a_file_that_stays_away_ends_with_what_to_do(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path, 0)
    source = open_source(str(path), DataSpec(retry_s=0.2), tmp_path / "index", run="1")
    path.unlink()

    with pytest.raises(DataUnavailable, match=rf"{name}: it could not be read for 0.2 s: .*No such file.*data_retry_s"):
        source.read(np.array([3]))


@EVERY
def test_a_touch_is_no_change(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path, 0)
    source = open_source(str(path), DataSpec(), tmp_path / "index", run="1")
    before = source.read(np.array([5, 2]))
    os.utime(path, ns=(1, 1))

    assert source.read(np.array([5, 2])) == before
    later = open_source(str(path), DataSpec(), tmp_path / "index", run="1")  # a worker that joins afterwards
    assert later.read(np.array([5, 2])) == before


@EVERY
def test_another_content_of_the_same_size_is_a_change(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path, 0)
    source, size = open_source(str(path), DataSpec(), tmp_path / "index", run="1"), path.stat().st_size
    WRITERS[name](path, 100 if name != "a.jsonl" else 500)
    os.utime(path, ns=(1, 1))
    assert path.stat().st_size == size

    with pytest.raises(DataError, match=rf"{name}: the file changed .*\(the same size, different content\)"):
        source.read(np.array([3]))
    with pytest.raises(DataError, match="the file changed"):  # reported to a worker that joins later, too
        open_source(str(path), DataSpec(), tmp_path / "index", run="1").read(np.array([3]))
    open_source(str(path), DataSpec(), tmp_path / "index", run="2").read(np.array([3]))  # another run begins with it


def test_an_index_from_before_the_job_knows_the_content_of_its_file(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv")
    open_source(str(tmp_path / "a.csv"), DataSpec(), tmp_path / "index")  # as the command line does before launch
    source = open_source(str(tmp_path / "a.csv"), DataSpec(), tmp_path / "index", run="1")
    os.utime(tmp_path / "a.csv", ns=(1, 1))

    assert source.read(np.array([0])) == [{"x": "000"}]
    (record,) = inventory.load_inventory(tmp_path / "index", str(tmp_path / "a.csv"), "1") or []
    assert record.digest.startswith("whole:")


def test_all_workers_of_a_run_read_the_files_that_the_first_one_found(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("a.csv", "b.csv"):
        write_csv(tmp_path / "data" / name)
    first = open_source(str(tmp_path / "data"), DataSpec(), tmp_path / "index", run="1")
    write_csv(tmp_path / "data" / "c.csv")
    (tmp_path / "data" / "a.csv").rename(tmp_path / "away")
    threading.Timer(0.3, (tmp_path / "away").rename, (tmp_path / "data" / "a.csv",)).start()

    second = open_source(str(tmp_path / "data"), DataSpec(), tmp_path / "index", run="1")

    assert len(second) == len(first) == 80
    assert second.read(np.array([0, 79])) == first.read(np.array([0, 79]))


def test_a_process_without_descriptors_waits_until_it_has_some(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv")
    source = open_source(str(tmp_path / "a.csv"), DataSpec(), tmp_path / "index", run="1")
    source.read(np.array([1]))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    freed = threading.Timer(0.3, resource.setrlimit, (resource.RLIMIT_NOFILE, (soft, hard)))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            (tmp_path / "a.csv").read_bytes()
        freed.start()
        assert source.read(np.array([3])) == [{"x": "003"}]
    finally:
        freed.join()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENFILE])
def test_a_read_that_fails_once_is_repeated(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    write_csv(tmp_path / "a.csv")
    source = open_source(str(tmp_path / "a.csv"), DataSpec(), tmp_path / "index", run="1")
    pread, failures = os.pread, [number]

    def failing(descriptor: int, length: int, offset: int) -> bytes:
        if failures:
            raise OSError(failures.pop(), "the disk failed")
        return pread(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", failing)

    assert source.read(np.array([3])) == [{"x": "003"}]
    assert failures == []


def test_a_permanent_error_is_raised_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_csv(tmp_path / "a.csv")
    source = open_source(str(tmp_path / "a.csv"), DataSpec(), tmp_path / "index", run="1")

    def refused(descriptor: int, length: int, offset: int) -> bytes:
        raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(os, "pread", refused)
    with pytest.raises(DataError, match=r"a\.csv: can no longer be read: .*no"):
        source.read(np.array([3]))


def test_a_wrong_path_is_reported_at_once_before_launch_and_after_a_moment_in_a_worker(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        open_source(str(tmp_path / "a.csv"), DataSpec(), tmp_path / "index")
    with pytest.raises(DataError, match="no such file"):
        open_source(str(tmp_path / "a.csv"), DataSpec(retry_s=0.3), tmp_path / "index", run="1")
