from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from elasticdl.data import open_source
from elasticdl.data.readers.tfrecord import write_tfrecord
from elasticdl.errors import DataError
from elasticdl.spec import DataSpec

TABLE = b"1\ta\n\tb\n3\t\n"
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


@pytest.mark.parametrize("extension", PACKERS)
def test_a_packed_file_is_unpacked_once_beside_the_index_and_read_by_number(tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"train.tsv.{extension}"
    path.write_bytes(PACKERS[extension](TABLE))
    index, heard = tmp_path / "index", list[tuple[int, int]]()
    spec = DataSpec(columns=("n", "s"))

    source = open_source(str(path), spec, index, lambda *seen: heard.append(seen))

    assert source.read(np.array([2, 0])) == [{"n": "3", "s": ""}, {"n": "1", "s": "a"}]
    assert source.locate(1) == f"{path}, line 2"
    assert heard[-1] == (path.stat().st_size,) * 2
    (unpacked,) = index.glob("*.unpacked")
    before = unpacked.stat().st_mtime_ns
    open_source(str(path), spec, index)
    assert unpacked.stat().st_mtime_ns == before and unpacked.read_bytes() == TABLE


def test_a_packed_file_that_changed_is_unpacked_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"x\n1\n", mtime=0))
    open_source(str(path), DataSpec(), tmp_path / "index")
    path.write_bytes(gzip.compress(b"x\n1\n2\n", mtime=0))

    assert len(open_source(str(path), DataSpec(), tmp_path / "index")) == 2


def test_packed_tfrecords_are_read_too_and_without_an_index(tmp_path: Path) -> None:
    write_tfrecord(tmp_path / "a.tfrecord", [b"one", b"two"])
    (tmp_path / "b.tfrecord.gz").write_bytes(gzip.compress((tmp_path / "a.tfrecord").read_bytes()))

    assert open_source(str(tmp_path / "b.tfrecord.gz"), DataSpec()).read(np.array([1])) == [b"two"]


@pytest.mark.parametrize(
    ("content", "spec", "message"),
    [
        (gzip.compress(TABLE, mtime=0)[:-9], DataSpec(), r"a\.tsv\.gz: truncated, or no \.gz file"),
        (b"plain text", DataSpec(), r"a\.tsv\.gz: truncated, or no \.gz file"),
        (gzip.compress(b"", mtime=0), DataSpec(), r"a\.tsv\.gz: there is nothing in it"),
        (
            gzip.compress(TABLE, mtime=0),
            DataSpec(unpack_limit="4"),
            r"more than 4 bytes unpacked; raise data\.unpack_limit",
        ),
    ],
)
def test_what_cannot_be_unpacked_is_told_and_leaves_nothing(
    tmp_path: Path, content: bytes, spec: DataSpec, message: str
) -> None:
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(content)

    with pytest.raises(DataError, match=message):
        open_source(str(path), spec, tmp_path / "index")

    assert list((tmp_path / "index").glob("*.new")) == []


def test_a_delimiter_is_one_letter_or_tab() -> None:
    assert DataSpec(delimiter="tab").delimiter == "\t"
    with pytest.raises(ValidationError, match="use one ASCII character"):
        DataSpec(delimiter="::")
