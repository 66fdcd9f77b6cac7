"""Jobs whose records are rows of a database: each is trained exactly as often as promised, also when processes die."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from elasticdl.checkpoint import store
from elasticdl.checkpoint.captured_state import MODEL_PREFIX
from tests import native, postgres
from tests.integration.job import ZOO, Job, Jobs
from tests.integration.rows import ROWS
from tests.postgres import PASSWORD, PostgresServer

EPOCHS, BATCH = 2, 50


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres.server() as postgres_server:
        postgres_server.execute(
            "CREATE TABLE clicks (id bigint PRIMARY KEY, weight real)",
            f"INSERT INTO clicks SELECT n, 1 FROM generate_series(0, {ROWS - 1}) AS n",
        )
        yield postgres_server


@pytest.fixture
def duckdb_file(tmp_path: Path) -> Path:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "clicks.db"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE clicks AS SELECT n AS id, 1.0::FLOAT AS weight FROM range({ROWS + 500}) r(n)")
        connection.execute(f"DELETE FROM clicks WHERE id >= {ROWS}")
    return path


def start(jobs: Jobs, name: str, address: str, *options: str, password: str = PASSWORD) -> Job:
    job = Job(jobs.home, name)
    job.slow.touch()
    return jobs.launch(
        job,
        [
            "train", "--detach", "--job_name", name, "--threads", "1", "--model_zoo", str(ZOO), "--model_def",
            "rows.forward", "--model_params", f"slow={job.slow};pause_s=0.3", "--output", str(job.output),
            "--training_data", address, "--num_epochs", str(EPOCHS), "--global_batch_size", str(BATCH),
            "--logical_ranks", "2", "--max_workers", "2", "--num_workers", "2", *options,
        ],
        PGPASSWORD=password,
    )  # fmt: skip


def assert_every_row_counts_once_an_epoch(job: Job) -> None:
    result = job.result()
    assert (result["phase"], result["records"]) == ("succeeded", EPOCHS * ROWS), f"{result}\n{job.story()}"
    seen = load_file(job.output / "model.safetensors")["seen.weight"][:, 0]
    np.testing.assert_allclose(seen, np.full(ROWS, EPOCHS / BATCH), rtol=1e-5)


def kill_one(job: Job) -> None:
    pids = job.wait_members(2, step=8)
    os.kill(list(pids.values())[1], signal.SIGKILL)
    job.wait_event("worker-lost")
    job.hurry()


@pytest.mark.slow
def test_rows_of_duckdb_are_trained_once_an_epoch_although_a_worker_is_killed(jobs: Jobs, duckdb_file: Path) -> None:
    job = start(jobs, "duckdb", f"duckdb://{duckdb_file}?table=clicks")

    kill_one(job)

    assert_every_row_counts_once_an_epoch(job)


def test_rows_of_postgres_are_trained_once_an_epoch_although_a_worker_is_killed_and_the_password_stays_hidden(
    jobs: Jobs, server: PostgresServer
) -> None:
    job = start(jobs, "postgres", server.address("clicks"))
    job.wait_members(2, step=2)
    shown = [
        job.command("status", job.name),
        job.command("status", job.name, "--json"),
        job.command("timeline", job.name),
    ]

    kill_one(job)

    assert_every_row_counts_once_an_epoch(job)
    written = b"".join(path.read_bytes() for path in job.directory.root.rglob("*") if path.is_file())
    written += b"".join(path.read_bytes() for path in job.output.rglob("*") if path.is_file())
    assert b"clicks" in written and PASSWORD.encode() not in written
    assert all(PASSWORD not in completed.stdout + completed.stderr for completed in shown)


def test_a_database_server_that_is_killed_and_restarted_costs_only_time(jobs: Jobs, server: PostgresServer) -> None:
    job = start(jobs, "back", server.address("clicks"), "--no-shuffle", "--data_retry_s", "50")
    job.wait_members(2, step=4)

    server.kill()
    try:
        job.hurry()
        job.wait_log("does not answer, trying again")
    finally:
        server.start()

    assert_every_row_counts_once_an_epoch(job)


@pytest.mark.slow
def test_a_database_server_that_stays_down_ends_the_job_with_a_checkpoint_and_the_reason(
    jobs: Jobs, server: PostgresServer
) -> None:
    job = start(jobs, "away", server.address("clicks"), "--no-shuffle", "--data_retry_s", "1")
    job.wait_members(2, step=4)

    server.kill()
    try:
        job.hurry()
        result = job.result()
    finally:
        server.start()

    assert result["phase"] == "failed" and result["exit_code"] == 1, job.story()
    assert "the database did not answer for 1 s" in result["reason"], result
    assert "resume from it with --resume" in result["reason"], result
    image, _, _ = store.find_checkpoint(job.directory.root / "checkpoints")
    assert image.step >= 4 and image.records == image.step * BATCH
    np.testing.assert_allclose(image.tensors[MODEL_PREFIX + "seen.weight"].sum(), image.step, rtol=1e-4)
    job.wait_gone()
    jobs.launch(job, ["train", "--resume", "--detach", "--job_name", job.name], PGPASSWORD=PASSWORD)
    assert_every_row_counts_once_an_epoch(job)


@pytest.mark.slow
def test_a_database_server_that_stays_down_stops_a_job_of_leases_with_a_checkpoint(
    jobs: Jobs, server: PostgresServer
) -> None:
    native.require()
    options = (
        "--no-shuffle",
        "--data_retry_s",
        "1",
        "--num_ps_pods",
        "1",
        "--ps_mode",
        "async",
        "--minibatch_size",
        "50",
    )
    job = start(
        jobs, "leases", server.address("clicks"), *options, "--embedding_on_ps", "all", "--shard_records", "100"
    )
    job.wait(lambda status: status.records >= 200, "some records")

    server.kill()
    try:
        job.hurry()
        result = job.result()
    finally:
        server.start()

    assert "the database did not answer for 1 s" in result["reason"], f"{result}\n{job.story()}"
    assert result["phase"] != "succeeded" and 200 <= result["records"] < EPOCHS * ROWS
    assert Path(result["checkpoint"]).is_dir()


def test_a_password_in_the_address_is_refused_and_not_repeated(jobs: Jobs) -> None:
    job = Job(jobs.home, "open")

    done = job.invoke(
        "train", "--job_name", "open", "--model_zoo", str(ZOO), "--model_def", "rows.forward", "--training_data",
        f"postgresql://me:{PASSWORD}@db.example.org/shop?table=clicks",
    )  # fmt: skip

    assert done.returncode == 2 and "set PGPASSWORD" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    assert not [path for path in jobs.home.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
