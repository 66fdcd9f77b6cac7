from __future__ import annotations

import hashlib
from pathlib import Path

from elasticdl.checkpoint.manifest import FileEntry, Manifest, checkpoint_name
from elasticdl.master.runtime import initial_checkpoint
from elasticdl.spec import CheckpointSpec, JobSpec, ModelSpec, PsSpec
from elasticdl.spec.directory import JobDirectory


def spec(checkpoint: CheckpointSpec, ps: int = 2) -> JobSpec:
    return JobSpec(name="job", model=ModelSpec(definition="m.f"), ps=PsSpec(replicas=ps), checkpoint=checkpoint)


def write_checkpoint(directory: Path, step: int, *, rows: bool) -> Path:
    checkpoint = directory / checkpoint_name(step)
    checkpoint.mkdir(parents=True)
    (checkpoint / "ps").mkdir()
    names = ["model.safetensors", *([initial_checkpoint.SNAPSHOT_INDEX] if rows else [])]
    for name in names:
        (checkpoint / name).write_bytes(b"x")
    files = {name: FileEntry(1, hashlib.sha256(b"x").hexdigest()) for name in names}
    manifest = Manifest(kind="checkpoint", step=step, records=0, files=files, meta={}, extra={})
    (checkpoint / "manifest.json").write_text(manifest.render())
    return checkpoint


def test_a_resumed_job_starts_from_the_newest_undamaged_checkpoint_with_rows(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    expected = write_checkpoint(tmp_path / "checkpoints", 20, rows=True)
    write_checkpoint(tmp_path / "checkpoints", 10, rows=True)
    write_checkpoint(tmp_path / "checkpoints", 30, rows=False)
    (write_checkpoint(tmp_path / "checkpoints", 40, rows=True) / "manifest.json").write_text("torn")
    (write_checkpoint(tmp_path / "checkpoints", 50, rows=True) / initial_checkpoint.SNAPSHOT_INDEX).write_text("y")

    assert initial_checkpoint.find_initial_snapshot(spec(CheckpointSpec(resume=True)), directory) == str(expected)
    assert initial_checkpoint.find_initial_snapshot(spec(CheckpointSpec()), directory) == "", (
        "a new job starts without a checkpoint"
    )
    assert initial_checkpoint.find_initial_snapshot(spec(CheckpointSpec(resume=True), ps=0), directory) == "", (
        "a job without ps has no rows"
    )


def test_a_job_may_start_from_one_checkpoint_or_a_directory_of_them(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path / "job")
    checkpoint = write_checkpoint(tmp_path / "other", 5, rows=True)

    for initial in (checkpoint, tmp_path / "other"):
        assert initial_checkpoint.find_initial_snapshot(spec(CheckpointSpec(init_from=str(initial))), directory) == str(
            checkpoint
        )


def test_a_job_whose_checkpoints_have_no_rows_starts_without_a_snapshot(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "other", 5, rows=False)

    assert (
        initial_checkpoint.find_initial_snapshot(
            spec(CheckpointSpec(init_from=str(tmp_path / "other"))), JobDirectory(tmp_path / "job")
        )
        == ""
    )
