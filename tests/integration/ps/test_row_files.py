"""Exported tables contain every trained row, for any number of shards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from elasticdl.errors import CheckpointCorrupt, SpecError
from elasticdl.ps.client.ps_client import PsClient
from elasticdl.ps.snapshots import exported_tables
from elasticdl.ps.snapshots.exported_tables import ExportedTables
from elasticdl.ps.tables.table import TableSpec, create_table
from elasticdl.spec import PsId
from tests.integration.ps.fleet import LocalFleet, declare_tables, rows_of

UNIFORM = TableSpec(name="a/b c", columns=3)


@pytest.fixture
def checkpoint(tmp_path: Path) -> tuple[Path, dict[int, float]]:
    """A checkpoint of two ps after three snapshots, and the sums in it."""
    fleet = LocalFleet(tmp_path / "checkpoints", 2)
    fleet.push(range(-1000, 1000))
    fleet.write_checkpoint(1)
    fleet.push([-7, 5, 2**62])
    fleet.move(range(300), PsId("ps-0"))
    fleet.write_checkpoint(2)
    fleet.push([5])
    path = fleet.write_checkpoint(3)
    sums = {row_id: values[0] for row_id, (values, _) in rows_of(*fleet.holdings.values())["sums"].items()}
    fleet.close()
    return path, sums


@pytest.mark.parametrize("shard_bytes", [1 << 28, 5000, 100])
def test_every_row_is_exported_with_its_newest_values(
    tmp_path: Path, checkpoint: tuple[Path, dict[int, float]], shard_bytes: int
) -> None:
    path, sums = checkpoint
    directory = tmp_path / "export"
    directory.mkdir()

    entries = exported_tables.export_tables(path, directory, seed=3, shard_bytes=shard_bytes)

    assert set(entries) == {file.name for file in directory.iterdir()}
    assert all(entries[file.name].bytes == file.stat().st_size for file in directory.iterdir())
    exported = ExportedTables.open(directory)
    assert exported.tables["sums"].rows == len(sums) == 2001
    ids = np.array([*sums, 10**9, -(10**9)])
    assert exported.lookup("sums", ids).tolist() == [[value, value] for value in [*sums.values(), 0.0, 0.0]]
    assert exported.lookup("sums", ids[:0]).shape == (0, 2)


def test_shards_are_sorted_and_no_larger_than_asked_for(
    tmp_path: Path, checkpoint: tuple[Path, dict[int, float]]
) -> None:
    exported_tables.export_tables(checkpoint[0], tmp_path, seed=3, shard_bytes=8000)

    shards = [load_file(path) for path in sorted(tmp_path.glob("0-sums-*.safetensors"))]
    assert len(shards) > 3
    assert all((np.diff(shard["ids"]) > 0).all() for shard in shards)
    assert sum(len(shard["ids"]) for shard in shards) == 2001
    assert max(shard["ids"].nbytes + shard["values"].nbytes for shard in shards) < 1.2 * 8000


def test_the_lookup_code_of_the_documentation_returns_the_same_values(
    tmp_path: Path, checkpoint: tuple[Path, dict[int, float]]
) -> None:
    path, sums = checkpoint
    exported_tables.export_tables(path, tmp_path, seed=3, shard_bytes=8000)
    manual = (Path(__file__).parents[3] / "docs" / "checkpoints.md").read_text()
    program = next(part for part in manual.split("```python\n") if part.startswith("# rows of an exported table"))
    names: dict[str, object] = {}
    exec(compile(program.partition("```")[0], "checkpoints.md", "exec"), names)

    values = names["lookup"](tmp_path, "sums", np.array([*sums, 10**9]))  # type: ignore[operator]

    assert values.tolist() == [[value, value] for value in [*sums.values(), 0.0]]


def test_unseen_ids_have_their_initial_values(tmp_path: Path) -> None:
    fleet = LocalFleet(tmp_path / "checkpoints", 1)
    declare_tables(fleet.holdings[PsId("ps-0")], [UNIFORM])
    path = fleet.write_checkpoint(1)
    fleet.close()
    exported_tables.export_tables(path, tmp_path, seed=3)
    ids, first = np.arange(20), np.empty((20, 3), np.float32)
    create_table(UNIFORM, 3).pull(ids, first)

    rows = ExportedTables.open(tmp_path).lookup("a/b c", ids)

    assert (rows == first).all() and len(np.unique(rows)) == 60


def test_a_directory_that_is_no_export_is_refused(tmp_path: Path, checkpoint: tuple[Path, dict[int, float]]) -> None:
    with pytest.raises(SpecError, match=r"expected exported tables with rows\.json"):
        ExportedTables.open(tmp_path)
    exported_tables.export_tables(checkpoint[0], tmp_path, seed=3)
    with pytest.raises(SpecError, match=r"expected one of sums, squares\. Received: table users"):
        ExportedTables.open(tmp_path).lookup("users", np.arange(3))
    (tmp_path / "0-sums-00000.safetensors").write_bytes(b"short")
    with pytest.raises(CheckpointCorrupt, match="is not a shard of a table"):
        ExportedTables.open(tmp_path).lookup("sums", np.arange(3))
    (tmp_path / "rows.json").write_text(json.dumps({"format": 1}))
    with pytest.raises(CheckpointCorrupt, match="does not describe exported tables"):
        ExportedTables.open(tmp_path)


def test_a_table_of_known_size_is_pulled_in_the_order_of_its_ids(tmp_path: Path) -> None:
    spec = TableSpec(name="small", columns=4, rows=70_000)
    fleet = LocalFleet(tmp_path, 3)
    client = PsClient(fleet.view(), "token", 30.0).open()
    client.declare([spec])
    expected = np.empty((70_000, 4), np.float32)
    create_table(spec, 3).pull(np.arange(70_000), expected)

    table = exported_tables.pull_whole_table(client, spec)

    assert (table == expected).all()
    assert sum(len(rows) for rows in rows_of(*fleet.holdings.values()).values()) == 0, "looking makes no rows"
    with pytest.raises(SpecError, match="expected a known number of rows"):
        exported_tables.pull_whole_table(client, spec.model_copy(update={"rows": None}))
    client.close()
    fleet.close()
