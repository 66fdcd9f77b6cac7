"""Real jobs whose data is temporarily unavailable, touched, changed or partly unreadable."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from tests.integration.job import ZOO, Job, Jobs

RECORDS, BATCH, EPOCHS = 120, 12, 6


def write_data(path: Path) -> Path:
    """Some numbers that a net can learn, the same each time."""
    draw = random.Random(5)
    rows = []
    for _ in range(RECORDS):
        label = draw.randrange(2)
        rows.append(",".join([*(f"{draw.gauss(label, 1.0):+.4f}" for _ in range(4)), str(label)]))
    path.write_text("\n".join(["a,b,c,d,label", *rows]) + "\n")
    return path


def train(
    jobs: Jobs, name: str, data: Path, workers: int, *options: str, slow: bool = False, pause_s: float = 0.05
) -> Job:
    job = Job(jobs.home, name)
    job.slow.parent.mkdir(parents=True, exist_ok=True)
    if slow:
        job.slow.touch()
    arguments = [
        "train", "--detach", "--job_name", name, "--threads", "1", "--model_zoo", str(ZOO), "--model_def",
        "tiny_csv.forward", "--model_params", f"slow={job.slow};pause_s={pause_s}", "--output", str(job.output),
        "--training_data", str(data), "--num_epochs", str(EPOCHS), "--global_batch_size", str(BATCH),
        "--logical_ranks", "4", "--max_workers", "4", "--num_workers", str(workers), *options,
    ]  # fmt: skip
    return jobs.launch(job, arguments)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The bits of a run that nothing happened to."""
    home = tmp_path_factory.mktemp("calm")
    started = Jobs(home)
    try:
        return train(started, "calm", write_data(home / "data.csv"), 1).digest()
    finally:
        started.end()


def test_a_file_that_is_unavailable_for_a_while_and_touched_changes_nothing(
    jobs: Jobs, tmp_path: Path, calm: str
) -> None:
    data = write_data(tmp_path / "data.csv")
    job = train(jobs, "away", data, 2, slow=True)
    job.wait_members(2, step=3)
    data.rename(tmp_path / "elsewhere.csv")
    waits = job.wait_event("data-waits")
    assert "data.csv: it cannot be read" in waits["reason"] and "No such file" in waits["reason"]
    (tmp_path / "elsewhere.csv").rename(data)
    os.utime(data)
    job.wait_event("data-returned")
    job.hurry()

    assert job.digest() == calm
    assert "worker-lost" not in job.kinds()


@pytest.mark.slow
def test_a_worker_that_joins_while_a_file_is_unavailable_waits_for_it(jobs: Jobs, tmp_path: Path, calm: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_data(data / "a.csv")
    job = train(jobs, "late", data, 1, slow=True, pause_s=0.3)
    job.wait_members(1, step=3)
    write_data(data / "b.csv")  # comes too late for this job
    (data / "a.csv").rename(tmp_path / "a.csv")
    job.scale(2)
    job.wait_event("data-waits")
    (tmp_path / "a.csv").rename(data / "a.csv")
    job.wait_members(2)
    job.hurry()

    assert job.digest() == calm


@pytest.mark.slow
def test_a_file_that_is_gone_for_good_ends_the_job_with_its_state_and_it_can_be_resumed(
    jobs: Jobs, tmp_path: Path, calm: str
) -> None:
    data = write_data(tmp_path / "data.csv")
    job = train(jobs, "gone", data, 2, "--data_retry_s", "1.5", slow=True)
    job.wait_members(2, step=3)
    data.rename(tmp_path / "elsewhere.csv")
    result = job.result()
    job.wait_gone()

    assert (result["phase"], result["exit_code"]) == ("failed", 1)
    assert "data.csv: it could not be read for 1.5 s" in result["reason"]
    assert result["checkpoint_step"] >= 3, "what was trained is kept"
    (tmp_path / "elsewhere.csv").rename(data)
    job.hurry()
    again = job.command("train", "--resume", "--detach", "--job_name", "gone")
    assert again.returncode == 0, again.stderr
    assert job.digest() == calm


@pytest.mark.slow
def test_changed_data_ends_the_job_with_its_state(jobs: Jobs, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.csv")
    job = train(jobs, "changed", data, 2, slow=True)
    job.wait_members(2, step=3)
    data.write_text(data.read_text().replace("+", "-"))
    result = job.result()

    assert result["phase"] == "failed"
    assert "data.csv: the file changed while the job was using it" in result["reason"]
    assert result["checkpoint_step"] >= 3


def spoil(data: Path) -> Path:
    """Three bad records: one without all its fields, one that the model file cannot parse, and the last cut off."""
    lines = data.read_text().splitlines()
    lines[10] = lines[10].rpartition(",")[0]
    lines[50] = lines[50].replace(",", ",much", 1)
    data.write_text("\n".join([*lines, "+0.1,"]))
    return data


def test_bad_records_up_to_the_limit_are_skipped_and_named_and_any_number_of_workers_gives_the_same_bits(
    jobs: Jobs, tmp_path: Path
) -> None:
    data = spoil(write_data(tmp_path / "data.csv"))
    alone = train(jobs, "one", data, 1, "--bad_records", "3").digest()
    job = train(jobs, "two", data, 2, "--bad_records", "3", "--checkpoint_steps", "5", slow=True)
    victim = list(job.wait_members(2, step=12).values())[1]
    os.kill(victim, signal.SIGKILL)  # what it computed is computed again, and bad records are met again
    job.wait_event("worker-lost")
    job.hurry()

    assert job.digest() == alone
    reasons = sorted(event["reason"] for event in job.events() if event["kind"] == "bad-record")
    assert len(reasons) == 3, "each once, in six epochs and by any number of workers"
    assert "data.csv, line 11: expected 5 fields" in reasons[2]
    assert "data.csv, line 122: expected 5 fields" in reasons[0]
    assert "data.csv, line 51" in reasons[1] and "map(dataset_fn.<locals>.parse) of dataset_fn failed" in reasons[1]
    document = job.document()
    assert document["bad_records"] == 3
    shown = job.command("status", "two").stdout
    assert "bad records" in shown and "3 skipped" in shown


@pytest.mark.slow
def test_a_bad_record_ends_a_job_that_allows_none_with_its_name_and_the_fix(jobs: Jobs, tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.csv")
    lines = data.read_text().splitlines()
    lines[110] = lines[110].replace(",", ",much", 1)
    data.write_text("\n".join(lines) + "\n")
    job = train(jobs, "none", data, 2, "--no-shuffle")
    result = job.result()

    assert (result["phase"], result["exit_code"]) == ("failed", 2)
    assert "data.csv, line 111: map(dataset_fn.<locals>.parse) of dataset_fn failed: ValueError" in result["reason"]
    assert "--bad_records=N" in result["reason"]
    assert result["checkpoint_step"] == 9, "of the 110 records before it, and no other"
    job.wait_gone()
    again = job.command("train", "--resume", "--detach", "--job_name", "none", "--bad_records", "1")
    assert again.returncode == 0, again.stderr
    assert job.result()["phase"] == "succeeded"


@pytest.mark.slow
def test_more_bad_records_than_allowed_end_the_job_with_its_state(jobs: Jobs, tmp_path: Path) -> None:
    job = train(jobs, "many", spoil(write_data(tmp_path / "data.csv")), 2, "--bad_records", "2")
    result = job.result()

    assert (result["phase"], result["exit_code"]) == ("failed", 1)
    assert "3 records are bad, 2 may be (data.bad_records, --bad_records)" in result["reason"]
    assert result["bad_records"] == 3 and len(result["bad_record_names"]) == 3
