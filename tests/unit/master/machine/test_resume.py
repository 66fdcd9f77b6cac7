from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.checkpoint.manifest import Manifest, checkpoint_name
from elasticdl.master.machine.events import JobResumed
from elasticdl.master.runtime import initial_checkpoint
from elasticdl.master.views.status import job_status
from elasticdl.spec import CheckpointSpec, JobKind, JobSpec, ModelSpec, PlanSpec, ScriptSpec
from elasticdl.spec.directory import JobDirectory
from tests.unit.master.driver import Driver

SPEC = JobSpec(
    name="job",
    model=ModelSpec(definition="m.f"),
    checkpoint=CheckpointSpec(resume=True),
    plan=PlanSpec(epochs=4, logical_ranks=4),
)
SCRIPT = JobSpec(name="job", kind=JobKind.SCRIPT, script=ScriptSpec(path="train.py"))
CHECKPOINT = JobResumed(step=30, records=300, records_per_epoch=200, path="/c/checkpoint-000000030", job="first")


def write_checkpoint(directory: Path, step: int, **extra: object) -> Path:
    checkpoint = directory / checkpoint_name(step)
    checkpoint.mkdir(parents=True)
    document = Manifest(kind="checkpoint", step=step, records=10 * step, files={}, meta={}, extra=extra)
    (checkpoint / "manifest.json").write_text(document.render())
    return checkpoint


def test_the_progress_of_a_resumed_job_is_read_from_its_newest_complete_manifest(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    write_checkpoint(checkpoints, 20)
    path = write_checkpoint(checkpoints, 30, job="first", records_per_epoch=200)
    (write_checkpoint(checkpoints, 40) / "manifest.json").write_text("torn")

    assert initial_checkpoint.find_resumed_checkpoint(SPEC, JobDirectory(tmp_path)) == CHECKPOINT._replace(
        path=str(path)
    )


def test_no_manifest_is_read_for_a_new_job_or_if_earlier_runs_are_known(tmp_path: Path) -> None:
    assert initial_checkpoint.find_resumed_checkpoint(SPEC, JobDirectory(tmp_path)) is None, "there is no checkpoint"
    write_checkpoint(tmp_path / "checkpoints", 20)
    new = SPEC.model_copy(update={"checkpoint": CheckpointSpec()})
    assert initial_checkpoint.find_resumed_checkpoint(new, JobDirectory(tmp_path)) is None
    assert initial_checkpoint.find_resumed_checkpoint(SPEC, JobDirectory(tmp_path)) is not None
    (tmp_path / "previous-1").mkdir()
    assert initial_checkpoint.find_resumed_checkpoint(SPEC, JobDirectory(tmp_path)) is None


def test_the_checkpoint_is_shown_until_workers_are_beyond_it_also_by_the_next_master() -> None:
    driver = Driver(SPEC)
    driver.do(CHECKPOINT)
    shown = job_status(driver.machine.state, driver.now)

    assert (shown.phase, shown.step, shown.records, shown.total_records) == ("pending", 30, 300, 800)
    assert (shown.epoch, shown.epochs, shown.checkpoint_step) == (1, 4, 30)
    assert shown.checkpoint_path == CHECKPOINT.path
    (event,) = [event for event in shown.events if event.kind == "resumed"]
    assert (event.step, event.reason) == (30, "from step 30 of job first, 300 of 800 records, epoch 2 of 4")
    assert job_status(driver.replayed().state, driver.now) == shown
    again = Driver(SPEC)
    again.machine.load_ledger(driver.machine.dump_ledger())
    assert again.machine.state.ledger.resumed_from == CHECKPOINT

    driver.join("worker-0", "worker-1")
    driver.enter(step=31)
    driver.beat("worker-0", step=31)
    assert job_status(driver.machine.state, driver.now).step == 31


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (SCRIPT, "from step 30 of job first, 300 records"),
        (SPEC.model_copy(update={"name": "first"}), "from step 30, 300 of 800 records, epoch 2 of 4"),
        (
            SPEC.model_copy(update={"plan": PlanSpec(epochs=4, max_steps=50, logical_ranks=4)}),
            "from step 30 of job first, 300 records",
        ),
    ],
)
def test_the_event_of_a_resumed_job_has_only_what_is_known(spec: JobSpec, sentence: str) -> None:
    driver = Driver(spec)

    driver.do(CHECKPOINT)

    assert [event.reason for event in job_status(driver.machine.state, driver.now).events][-1] == sentence
