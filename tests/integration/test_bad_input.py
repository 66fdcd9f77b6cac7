"""Bad input through the real command: exit code 2 for an invalid job and 1 for a failed one, a message with the fix,
and nothing half-written left behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from elasticdl.checkpoint import staging, store
from elasticdl.spec.directory import read_json
from elasticdl.zoo import new_project as starter
from tests.integration.job import PATIENCE_S, Job, Jobs


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A good job: job.yaml, starter.py and its data."""
    starter.create_project(tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 400 kB; only root may make one."""
    directory = tmp_path / "disk"
    directory.mkdir()
    if (
        not shutil.which("mount")
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", directory], check=False, capture_output=True
        ).returncode
    ):
        pytest.skip("a small disk needs mount and the right to use it")
    yield directory
    subprocess.run(["umount", "--lazy", directory], check=True)


def files(root: Path) -> dict[Path, bytes]:
    paths = [path for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return {path: path.read_bytes() for path in paths}


def arguments(project: Path, *words: object) -> list[str]:
    return ["train", str(project / "job.yaml"), "--job_name", "job", *(str(word) for word in words)]


def train(project: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return Job(project.parent / "home", "job").command(*arguments(project, *words))


def refused(project: Path, *words: object) -> str:
    """The message of a wrong job that left everything as it was."""
    before = files(project.parent)

    done = Job(project.parent / "home", "job").invoke(*arguments(project, *words))

    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert files(project.parent) == before
    assert not (project.parent / "home" / "jobs" / "job").exists()
    return done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--num_worker=2"], "no such option --num_worker; did you mean --num_workers?"),
        (["--min_workers=4", "--max_workers=2"], "min 4 is above max 2; write them as min <= max"),
        (["--num_workers=2.5"], "--num_workers): expected a whole number; received '2.5'"),
        (["--global_batch_size=3", "--logical_ranks=8"], "use at least --global_batch_size=8"),
        (["--model_def=starter.forwards"], "forwards"),
        (["--metrics_port=70000"], "--metrics_port): expected at most 65535; received '70000'"),
    ],
)
def test_an_invalid_option_is_refused_with_the_fix(project: Path, words: list[str], expected: str) -> None:
    assert expected in refused(project, *words)


def test_a_misspelt_key_in_the_job_file_is_refused_with_the_closest_match(project: Path) -> None:
    job = project / "job.yaml"
    job.write_text(job.read_text().replace("epochs:", "epoch:"))

    assert f"{job}: plan.epoch: unknown key; did you mean 'epochs'?" in refused(project)


def test_a_reversed_range_of_workers_is_refused(project: Path) -> None:
    done = Job(project.parent / "home", "job").command("run", "--workers", "4:2", str(project / "starter.py"))

    assert (done.returncode, done.stdout) == (2, "")
    assert "min 4 is above max 2" in done.stderr


@pytest.mark.parametrize(
    ("option", "instead"),
    [("--seed=1", "join(…, seed=…)"), ("--output=x", "job.is_first"), ("--num_workers=2", "--workers N")],
)
def test_options_that_the_script_decides_are_refused_by_run(project: Path, option: str, instead: str) -> None:
    done = Job(project.parent / "home", "job").invoke("run", option, str(project / "starter.py"))

    assert done.returncode == 2
    assert instead in done.stderr


def test_a_model_file_with_a_syntax_error_is_shown_with_its_line(project: Path) -> None:
    model = project / "starter.py"
    model.write_text(model.read_text().replace("def loss(labels: Tensor,", "def loss(labels: Tensor,,"))

    assert re.search(rf"{re.escape(str(model))}, line \d+: invalid syntax", refused(project))


HEADER = "x,y,label\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "no such file; check the path"),
        ("", "the file is empty (0 bytes)"),
        (HEADER, "no records"),
        (HEADER + "1,2,0\n1,", "line 3: expected 3 fields ('x', 'y', 'label'), got 2"),
        (HEADER + '1,2,0\n1,"2,0\n', 'line 3: a quote (") is opened in this record and never closed'),
        (HEADER + "1,2\n1,2,0\n", "line 2: expected 3 fields"),
        ("1,2,0\n3,4,1\n", "line 1: expected a header, got numbers"),
    ],
    ids=["missing", "empty", "no-records", "cut-off", "open-quote", "too-few-fields", "no-header"],
)
def test_missing_or_damaged_data_is_reported_with_file_and_position(
    project: Path, content: str | None, expected: str
) -> None:
    data = project / "other.csv"
    if content is not None:
        data.write_text(content)

    message = refused(project, f"--training_data={data}")

    assert str(data) in message
    assert expected in message


@pytest.mark.parametrize("name", ["records.tfrecord", "records.parquet"])
def test_a_truncated_binary_file_is_refused(project: Path, name: str) -> None:
    data = project / name
    data.write_bytes(b"PAR1" + bytes(60))

    assert str(data) in refused(project, f"--training_data={data}")


def test_columns_that_the_file_lacks_are_refused(project: Path) -> None:
    assert "no column 'z' in the header 'x', 'y', 'label'" in refused(project, "--columns=x,y,z")


def test_a_column_that_the_model_needs_and_the_data_lacks_is_named_with_the_existing_columns(project: Path) -> None:
    done = train(project, "--columns=a,b,c", "--num_workers=1")

    assert done.returncode == 2
    assert "KeyError: 'x'; the record has 'a', 'b', 'c': correct dataset_fn or the data" in done.stdout
    assert not (project / "trained").exists()


@pytest.mark.parametrize("option", ["--output", "--checkpoint_dir"])
def test_a_directory_that_cannot_be_written_is_refused(project: Path, option: str) -> None:
    message = refused(project, f"{option}={project}/job.yaml/below")

    assert option in message
    assert "name another directory" in message


def test_an_output_that_holds_other_files_is_never_replaced(project: Path) -> None:
    assert "holds other files and is not replaced" in refused(project, f"--output={project}/data")


def test_a_checkpoint_directory_of_another_run_is_refused_with_the_options_for_it(project: Path) -> None:
    (project / "old" / "checkpoint-000000007").mkdir(parents=True)

    message = refused(project, f"--checkpoint_dir={project}/old")

    assert "checkpoint-000000007" in message
    assert "--resume" in message
    assert f"--checkpoint_dir_for_init={project}/old" in message


def test_a_metrics_port_in_use_is_refused(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        message = refused(project, f"--metrics_port={port}")

    assert f"127.0.0.1:{port} (Address already in use)" in message
    assert "choose another port" in message


def test_a_loss_that_is_not_a_number_ends_the_job_with_step_rank_and_a_checkpoint(project: Path) -> None:
    model = project / "starter.py"
    good = "return nn.functional.cross_entropy(predictions, labels)"
    assert good in model.read_text()
    bad = f"found = {good.removeprefix('return ')}\n    return found * float('nan') if found < 0.6 else found"
    model.write_text(model.read_text().replace(good, bad))

    done = train(project, "--num_workers=2", "--max_workers=2")

    assert done.returncode == 1, done.stdout + done.stderr
    message = re.search(r"the loss became nan in step (\d+) at logical rank [01]: lower the learning rate", done.stdout)
    assert message, done.stdout
    image, _, path = store.find_checkpoint(project.parent / "home" / "jobs" / "job" / "checkpoints")
    assert image.step == int(message[1])
    assert str(path) in done.stdout
    assert all(torch.isfinite(tensor).all() for tensor in image.weights().values())
    assert not (project / "trained").exists()


def test_a_full_disk_during_a_checkpoint_is_reported_and_leaves_no_partial_file(
    project: Path, small_disk: Path
) -> None:
    directory = small_disk / "checkpoints"

    done = train(
        project, "--num_workers=1", "--model_params=hidden=400", "--checkpoint_steps=5", "--checkpoint_retry_s=0.5",
        f"--checkpoint_dir={directory}",
    )  # fmt: skip

    assert done.returncode == 1, done.stdout + done.stderr
    assert f"the last checkpoint cannot be written: cannot write {directory}/checkpoint-" in done.stdout
    assert "No space left on device" in done.stdout
    assert "name another directory with --checkpoint_dir" in done.stdout
    assert "continue with --checkpoint_dir_for_init=" in done.stdout
    assert list(directory.iterdir()) == []
    assert not (project / "trained").exists()


def listen(host: str, port: int) -> socket.socket:
    """A socket that has the port as soon as a killed process lets go of it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_server((host, port))
        except OSError:
            assert time.monotonic() < deadline, f"{host}:{port} was never free"


def test_a_restarted_master_whose_port_is_taken_listens_on_another(jobs: Jobs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        metrics_port = free.getsockname()[1]
    job = jobs.train("ports", 2, f"--metrics_port={metrics_port}", slow=True)
    job.wait_members(2, step=1)
    before = read_json(job.directory.master)
    assert before is not None
    assert before["metrics_port"] == metrics_port
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10) as page:
        assert b'elasticdl_step{job="ports"}' in page.read()
    host, _, port = before["address"].partition(":")

    launcher = job.record().launcher.pid
    os.kill(launcher, signal.SIGSTOP)  # it would be faster than we are
    job.kill_master()
    with listen(host, int(port)):
        os.kill(launcher, signal.SIGCONT)
        job.wait_event("master-restarted")
        status = job.status()

    assert status is not None and status.phase == "running"
    after = read_json(job.directory.master)
    assert after is not None and after["address"] != before["address"]
    job.hurry()
    assert job.result()["phase"] == "succeeded"


def test_files_of_a_dead_writer_are_deleted_before_the_next_write(project: Path) -> None:
    left = project / f"{staging.STAGING_PREFIX}trained-0000"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")

    done = train(project, "--num_workers=1", "--max_steps=2")

    assert done.returncode == 0, done.stdout + done.stderr
    assert not left.exists()
    assert (project / "trained" / "model.safetensors").exists()
