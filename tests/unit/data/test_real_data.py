"""Readers against real files, where the machine has them beside the repository."""

from __future__ import annotations

import csv
import lzma
from pathlib import Path

import numpy as np
import pytest

from elasticdl.data.dataset import Dataset
from elasticdl.data.plan import TrainingPlan
from elasticdl.data.readers.tfrecord import write_tfrecord
from elasticdl.data.sources import open_source
from elasticdl.spec import DataSpec

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the real data sets are not on this machine")

CRITEO = ("label", *(f"I{number}" for number in range(1, 14)), *(f"C{number}" for number in range(1, 27)))
ADULT = "age workclass weight education years marital occupation relationship race sex gain loss hours country income"


def unpack(name: str, to: Path, megabytes: int) -> Path:
    """The first megabytes of a file, cut after a line."""
    with lzma.open(SHARED / name) as packed:
        content = packed.read(megabytes << 20)
    to.write_bytes(content[: content.rindex(b"\n") + 1])
    return to


def test_criteo_records_are_those_the_csv_module_finds(tmp_path: Path) -> None:
    path = unpack("ctr/criteo_dac_137k.tsv.xz", tmp_path / "train.txt", megabytes=4)
    source = open_source(str(path), DataSpec(format="csv", columns=CRITEO), tmp_path / "index")
    with path.open(newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))

    plan = TrainingPlan(len(source), global_batch=512, logical_ranks=4, seed=3)

    assert len(source) == len(rows)
    for step in (0, plan.total_steps - 1):
        batch = plan.batch(step)
        assert [tuple(record.values()) for record in source.read(batch)] == [tuple(rows[index]) for index in batch]


def test_criteo_is_read_as_columns_from_its_packed_file(tmp_path: Path) -> None:
    path = tmp_path / "train.tsv.xz"
    path.write_bytes(
        lzma.compress(unpack("ctr/criteo_dac_137k.tsv.xz", tmp_path / "train.txt", 2).read_bytes(), preset=0)
    )
    source = open_source(str(path), DataSpec(columns=CRITEO), tmp_path / "index")
    batch = np.random.default_rng(0).integers(0, len(source), 500)

    columns = Dataset(source).map_columns(len, dict.fromkeys(CRITEO[:14], "float32")).read(batch)

    records = source.read(batch)
    for name, column in zip(CRITEO, columns.columns, strict=True):
        kind = float if name in CRITEO[:14] else str
        assert column.to_pylist() == [kind(record[name]) if record[name] else None for record in records]


def test_adult_becomes_batches_of_numbers(tmp_path: Path) -> None:
    path = unpack("ctr/adult.data.xz", tmp_path / "adult.data", megabytes=1)
    source = open_source(str(path), DataSpec(format="csv", columns=tuple(ADULT.split())))
    dataset = Dataset(source).map_batches(
        lambda columns: (
            np.stack([columns["age"].astype(np.float32), columns["hours"].astype(np.float32)], axis=1),
            np.array([">50K" in income for income in columns["income"]]),
        )
    )

    batch = dataset.read_batch(np.arange(100))

    assert batch is not None and batch.size == 100
    assert batch.features[0].tolist() == [39.0, 40.0]
    assert not batch.labels[0]


def test_mnist_images_survive_a_tfrecord_file(tmp_path: Path) -> None:
    with lzma.open(SHARED / "images/mnist-t10k-images-idx3-ubyte.xz") as packed:
        images = np.frombuffer(packed.read(16 + 784 * 2000), dtype=np.uint8)[16:].reshape(-1, 784)
    write_tfrecord(tmp_path / "images.tfrecord", (image.tobytes() for image in images))

    source = open_source(str(tmp_path / "images.tfrecord"), DataSpec(), tmp_path / "index")

    numbers = TrainingPlan(len(source), global_batch=256, logical_ranks=1).batch(5)
    pixels = np.stack([np.frombuffer(record, dtype=np.uint8) for record in source.read(numbers)])
    assert len(source) == 2000
    assert np.array_equal(pixels, images[numbers])
