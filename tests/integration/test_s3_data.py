"""Records of files in an object store, read by number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticdl.data import open_source
from elasticdl.data.readers.tfrecord import write_tfrecord
from elasticdl.errors import DataError, DataUnavailable
from elasticdl.spec import DataSpec
from elasticdl.storage.paths import StorePath
from tests.integration.test_object_stores import FailTimes
from tests.s3 import Proxy, pass_all

RECORDS = 5000
ORDER = np.random.default_rng(3).permutation(RECORDS)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The same records in all formats, each in two files."""
    for half in range(2):
        numbers = range(half * RECORDS // 2, (half + 1) * RECORDS // 2)
        rows = [(number, f"wörd {number},\n" * (number % 5)) for number in numbers]
        for folder in ("csv", "parquet", "tfrecord"):
            (tmp_path / folder).mkdir(exist_ok=True)
        lines = "".join('{},"{}"\n'.format(*row) for row in rows)
        (tmp_path / "csv" / f"{half}.csv").write_text(f"id,text\n{lines}")
        table = pa.table({"id": [row[0] for row in rows], "text": [row[1] for row in rows]})
        pq.write_table(table, tmp_path / "parquet" / f"{half}.parquet", row_group_size=700)
        write_tfrecord(tmp_path / "tfrecord" / f"{half}.tfrecord", [f"{row}".encode() for row in rows])
    return tmp_path


def upload(directory: Path, bucket: StorePath) -> None:
    for path in directory.iterdir():
        (bucket / path.name).upload(path)


@pytest.mark.parametrize("kind", ["csv", "parquet", "tfrecord"])
def test_records_by_number_are_those_of_local_files_though_the_store_fails_now_and_then(
    kind: str, files: Path, bucket: StorePath, s3: Proxy, tmp_path: Path
) -> None:
    upload(files / kind, bucket)
    local = open_source(str(files / kind), DataSpec())
    s3.rule = rule = FailTimes(3)

    source = open_source(str(bucket), DataSpec(), tmp_path / "index")

    assert (len(source), rule.left) == (RECORDS, 0)
    for start in range(0, RECORDS, 1250):
        s3.rule = rule = FailTimes(2, 500)
        numbers = ORDER[start : start + 250]
        assert source.read(numbers) == local.read(numbers)
        assert rule.left == 0 or (kind == "parquet" and start)  # whose row groups are in memory by then
    s3.rule = pass_all
    assert open_source(f"{bucket}/*.{kind}", DataSpec(), tmp_path / "index").read(ORDER[:9]) == local.read(ORDER[:9])


def test_neighbours_are_read_in_one_request(files: Path, bucket: StorePath, s3: Proxy) -> None:
    upload(files / "csv", bucket)
    source = open_source(f"{bucket}/0.csv", DataSpec())
    s3.requests.clear()

    records = source.read(np.array([90, 3, 7, 50]))

    assert [record["id"] for record in records] == ["90", "3", "7", "50"]
    assert [method for method, _ in s3.requests] == ["HEAD", "GET"]


def test_compressed_files_are_unpacked_from_the_store(bucket: StorePath, tmp_path: Path) -> None:
    import gzip

    (bucket / "a.csv.gz").write_bytes(gzip.compress(b"x\n1\n2\n3\n"))

    source = open_source(f"{bucket}/a.csv.gz", DataSpec(), tmp_path)

    assert [record["x"] for record in source.read(np.array([2, 0]))] == ["3", "1"]


def test_an_object_that_changes_is_an_error_and_never_a_mixture(bucket: StorePath) -> None:
    (bucket / "a.csv").write_bytes(b"x\n1\n2\n")
    source = open_source(f"{bucket}/a.csv", DataSpec())
    (bucket / "a.csv").write_bytes(b"x\n3\n4\n")

    with pytest.raises(DataError, match="changed while the job was using it"):
        source.read(np.array([0]))


def test_an_unavailable_store_is_waited_for_as_long_as_the_job_says(bucket: StorePath, s3: Proxy) -> None:
    (bucket / "a.csv").write_bytes(b"x\n1\n2\n")
    source = open_source(f"{bucket}/a.csv", DataSpec(retry_s=0.5))
    s3.rule = lambda method, path: 503

    with pytest.raises(DataUnavailable, match=r"did not answer for 0\.5 s.*--data_retry_s"):
        source.read(np.array([0]))


def test_data_that_may_not_be_read_is_refused_at_once(bucket: StorePath, s3: Proxy) -> None:
    (bucket / "a.csv").write_bytes(b"x\n1\n2\n")
    s3.rule = lambda method, path: 403

    with pytest.raises(DataError, match=r"the store refuses it: .*AWS_ACCESS_KEY_ID"):
        open_source(f"{bucket}/a.csv", DataSpec())


def test_a_missing_object_is_named_by_its_address(bucket: StorePath) -> None:
    with pytest.raises(DataError, match=rf"{bucket}/nowhere.csv: no such file; check the bucket and the key"):
        open_source(f"{bucket}/nowhere.csv", DataSpec())
