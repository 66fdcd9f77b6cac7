from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

from elasticdl.data.files.stored_file import find_file
from elasticdl.data.readers.tfrecord import TFRecordSource, open_tfrecord, write_tfrecord
from elasticdl.errors import DataError
from elasticdl.tfrecord_frames import masked_crc
from tests.properties import examples


def source_of(path: Path, records: list[bytes], index: Path | None = None) -> TFRecordSource:
    write_tfrecord(path, records)
    return open_tfrecord(find_file(str(path)), index)


@settings(max_examples=examples(60))
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=20), st.data())
def test_records_are_read_back_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], data: st.DataObject
) -> None:
    source = source_of(tmp_path_factory.mktemp("records") / "a.tfrecord", records)
    numbers = data.draw(st.lists(st.integers(0, len(records) - 1), max_size=30))

    assert len(source) == len(records)
    assert source.read(np.array(numbers, dtype=np.int64)) == [records[index] for index in numbers]


def test_the_checksum_is_the_one_of_the_format() -> None:
    # CRC32C of "123456789" is 0xE3069283 (RFC 3720); masked as the format's documentation says.
    assert masked_crc(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_another_reader_of_the_format_reads_what_we_write(tmp_path: Path) -> None:
    write_tfrecord(tmp_path / "a.tfrecord", [b"one", b"", b"three"])

    reader = PyRecordReader_New(str(tmp_path / "a.tfrecord"))

    offsets = []
    for _ in range(3):
        reader.GetNext()
        offsets.append(reader.record())
    assert offsets == [b"one", b"", b"three"]


def test_records_larger_than_a_block_are_hopped_over(tmp_path: Path) -> None:
    records = [bytes([number]) * (3 << 19) for number in range(4)]

    source = source_of(tmp_path / "a.tfrecord", records, tmp_path / "index")

    assert source.read(np.array([3, 0])) == [records[3], records[0]]


@pytest.mark.parametrize("cut", [1, 4, 10, 15, 18])
def test_a_truncated_file_names_record_and_byte(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.tfrecord"
    write_tfrecord(path, [b"abc", b"def"])  # 19 bytes each
    path.write_bytes(path.read_bytes()[:-cut])

    with pytest.raises(DataError, match=r"a\.tfrecord, record 1 \(byte 19\): the file is truncated: .* write the file"):
        open_tfrecord(find_file(str(path)), tmp_path / "index")

    assert list((tmp_path / "index").iterdir()) == []


def test_a_damaged_length_is_found_when_the_file_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write_tfrecord(path, [b"abc", b"def"])
    damaged = bytearray(path.read_bytes())
    damaged[19] ^= 1
    path.write_bytes(damaged)

    with pytest.raises(DataError, match=r"record 1 \(byte 19\): the checksum of the length is wrong"):
        open_tfrecord(find_file(str(path)))


def test_damaged_bytes_are_found_when_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write_tfrecord(path, [b"abc", b"def"])
    damaged = bytearray(path.read_bytes())
    damaged[19 + 12] ^= 1
    path.write_bytes(damaged)
    source = open_tfrecord(find_file(str(path)))

    assert source.read(np.array([0])) == [b"abc"]
    with pytest.raises(DataError, match=r"record 1 \(byte 19\): the checksum of the record is wrong"):
        source.read(np.array([0, 1]))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\x1f\x8b" + b"0" * 30, "decompress it"), (b"x,y\n1,2\n" * 5, "not a TFRecord file")],
)
def test_a_file_of_another_format_is_told_apart(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.tfrecord").write_bytes(content)

    with pytest.raises(DataError, match=message):
        open_tfrecord(find_file(str(tmp_path / "a.tfrecord")))
