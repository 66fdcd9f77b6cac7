"""Every command of each example's README runs as written, in a copy of its directory."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from elasticdl.spec.directory import JobDirectory, read_json
from elasticdl.spec.env import HOME
from tests.integration.job import Job, Jobs, digest
from tests.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 120.0


@dataclass
class Shell:
    """Runs commands one after another in one directory, with a home of its own."""

    directory: Path
    home: Path
    printed: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  # what the commands wrote to stderr

    def run(self, line: str) -> str:
        """Runs the command and returns its output; a command that fails fails the test."""
        words = shlex.split(line)
        # As in an activated virtual environment.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        environ = {**os.environ, HOME: str(self.home), "PATH": path, "PYTHONWARNINGS": "ignore"}
        environ |= {"OMP_NUM_THREADS": "1"}  # small models: threads of many tests would wait for each other
        done = subprocess.run(
            words, cwd=self.directory, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        self.printed[line], self.notes[line] = done.stdout, done.stderr
        return done.stdout

    def result(self, kind: str) -> dict[str, object]:
        """The result of the only job of this kind."""
        results = [read_json(JobDirectory(root).result) or {} for root in (self.home / "jobs").iterdir()]
        (result,) = [result for result in results if result.get("kind") == kind]
        return result

    def metric(self, kind: str, name: str) -> float:
        metrics = self.result(kind)["metrics"]
        assert isinstance(metrics, dict)
        return float(metrics[name])

    def output_of(self, beginning: str) -> str:
        return next(text for line, text in self.printed.items() if line.startswith(beginning))

    def notes_of(self, beginning: str) -> str:
        return next(text for line, text in self.notes.items() if line.startswith(beginning))


def commands(readme: Path) -> list[str]:
    blocks = re.findall(r"```sh\n(.+?)\n```", readme.read_text(), re.DOTALL)
    return [line for block in blocks for line in re.sub(r" \\\n\s*", " ", block).splitlines() if line.strip()]


@pytest.fixture
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    """The example named by the test's parameter, with all commands of its README run."""
    directory = tmp_path / request.param
    shutil.copytree(
        EXAMPLES / request.param, directory, ignore=shutil.ignore_patterns("__pycache__", "data", "trained")
    )
    example = Shell(directory, tmp_path / "home")
    for line in commands(directory / "README.md"):
        example.run(line)
    return example


def is_export(directory: Path) -> bool:
    return {"model.safetensors", "model.json", "model.pt2"} == {path.name for path in directory.iterdir()}


@pytest.mark.parametrize("shell", ["01-train-a-model"], indirect=True)
def test_the_first_example_trains_a_model(shell: Shell) -> None:
    result = shell.result("training")

    assert is_export(shell.directory / "trained")
    assert result["records"] == result["total_records"]
    assert isinstance(result["loss"], float) and result["loss"] < 0.5
    assert "none lost, none twice" in shell.output_of("elasticdl train")


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["02-evaluation-and-callbacks"], indirect=True)
def test_the_second_example_evaluates_stops_early_and_predicts(shell: Shell) -> None:
    trained = shell.result("training")

    assert isinstance(trained["step"], int) and isinstance(trained["total_steps"], int)
    assert trained["step"] < trained["total_steps"]
    assert is_export(shell.directory / "trained")
    assert shell.metric("evaluation", "accuracy") > 0.9
    assert shell.result("prediction")["records"] == len((shell.directory / "data" / "test.csv").read_text().split()) - 1
    assert list((shell.directory / "predictions").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["03-your-own-script"], indirect=True)
def test_the_third_example_runs_alone_and_elastically(shell: Shell) -> None:
    result = shell.result("script")

    assert result["phase"] == "succeeded"
    assert result["records"] == result["total_records"]
    assert shell.output_of("python train.py")
    assert "elasticdl logs train-" in shell.output_of("elasticdl run")


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["04-your-own-data"], indirect=True)
def test_the_fourth_example_trains_on_a_dataset_of_its_own(shell: Shell) -> None:
    assert is_export(shell.directory / "trained")
    assert shell.result("training")["total_records"] == 3 * 3000
    assert shell.metric("training", "accuracy") > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["05-transformer"], indirect=True)
def test_the_fifth_example_trains_a_transformer_that_writes(shell: Shell) -> None:
    weights = load_file(shell.directory / "trained" / "model.safetensors")

    assert sum(tensor.size for tensor in weights.values()) > 10_000
    assert "definition:" in shell.output_of("elasticdl train job.yaml --dry-run")
    assert len(shell.output_of("python write.py")) > len("The import statement") + 20


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["06-embeddings"], indirect=True)
def test_the_sixth_example_trains_embeddings_on_ps_and_predicts_without_elasticdl(shell: Shell) -> None:
    weights = load_file(shell.directory / "trained" / "model.safetensors")
    chances = re.findall(r"tag (\d): +(\d+)%", shell.output_of("python predict.py"))

    assert shell.metric("training", "accuracy") > 0.9
    assert weights["user.stored.ids"].shape == (20,) and weights["user.stored.rows"].shape == (20, 8)
    assert max(chances, key=lambda chance: int(chance[1]))[0] == "3"


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["08-clicks"], indirect=True)
def test_the_eighth_example_goes_from_a_raw_csv_to_a_service(shell: Shell) -> None:
    assert shell.metric("evaluation", "auc") > 0.55
    assert shell.result("prediction")["records"] == 200
    assert (
        "lamp" in shell.output_of("elasticdl features analyze")
        and (shell.directory / "features.png").stat().st_size > 10_000
    )
    chances = re.findall(r"([\d.]+)%", shell.output_of("python serve.py"))
    assert len(chances) == 5 and all(0.0 < float(chance) < 100.0 for chance in chances)

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    service = subprocess.Popen([sys.executable, "serve.py", "ctr-ctr/model", str(port)], cwd=shell.directory)
    try:
        row = {"good": "tea", "device": "phone", "seen": "tea|pen", "price": 12.5}
        (chance,) = request_predictions(port, [row], service)
    finally:
        service.kill()
        service.wait()
    assert 0.0 < chance < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["09-from-ddp"], indirect=True)
def test_the_ninth_example_runs_under_ddp_and_elastically(shell: Shell) -> None:
    unmodified, advice = (read("elasticdl run --compat ddp") for read in (shell.output_of, shell.notes_of))

    assert "epoch 8 of 8: loss" in unmodified
    assert "train_ddp.py:38   loss.backward()" in advice and "→ step.backward(loss)" in advice
    assert "train_ddp.py:48   save_file(model.module" in advice and "→ without `.module`" in advice
    for output in (
        unmodified,
        shell.output_of("elasticdl run --workers 1:2 train.py"),
        shell.output_of("python train.py"),
    ):
        assert re.search(r"9\d\.\d% of the digits are read correctly", output)


def test_the_port_from_ddp_writes_at_most_eight_lines() -> None:
    counted = subprocess.run(
        ["git", "diff", "--no-index", "--numstat", "train_ddp.py", "train.py"],
        cwd=EXAMPLES / "09-from-ddp", capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert int(counted.stdout.split()[0]) <= 8, counted


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["10-lightning"], indirect=True)
def test_the_tenth_example_trains_with_lightning_alone_and_elastically(shell: Shell) -> None:
    result = shell.result("script")

    assert result["phase"] == "succeeded" and result["step"] == 96
    for command in ("python train.py --plain", "python train.py"):
        accuracy = re.search(r"accuracy: ([\d.]+)", shell.printed[command])
        assert accuracy is not None and float(accuracy[1]) > 0.9
    assert (shell.directory / "trained" / "best.ckpt").stat().st_size > 100_000


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["11-hugging-face"], indirect=True)
def test_the_eleventh_example_trains_a_small_gpt_alone_and_elastically(shell: Shell) -> None:
    result = shell.result("script")

    assert result["phase"] == "succeeded" and result["step"] == 20
    assert "20 steps in" in shell.output_of("python train.py --plain") and "20 steps in" in shell.output_of(
        "python train.py --st"
    )
    weights = load_file(shell.directory / "trained" / "checkpoint-20" / "model.safetensors")
    assert sum(tensor.size for tensor in weights.values()) > 1_000_000


def request_predictions(port: int, rows: list[dict[str, object]], service: subprocess.Popen[bytes]) -> list[float]:
    def ask() -> list[float]:
        assert service.poll() is None, "the service ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}", json.dumps(rows).encode(), timeout=30) as answer:
                predictions: list[float] = json.loads(answer.read())
                return predictions
        except urllib.error.URLError:
            return []  # not there yet

    return until("the service answers", ask, PATIENCE_S)


def test_a_starter_of_the_zoo_trains_at_once(tmp_path: Path) -> None:
    shell = Shell(tmp_path, tmp_path / "home")

    output = shell.run("elasticdl zoo init my-zoo")
    (command,) = [line.strip() for line in output.splitlines() if line.startswith("    ")]
    shell.run(command)

    assert shell.metric("training", "accuracy") > 0.9
    assert is_export(tmp_path / "my-zoo" / "trained")


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["12-gan"], indirect=True)
def test_the_twelfth_example_trains_two_models_that_take_turns(shell: Shell) -> None:
    result = shell.result("script")

    assert result["phase"] == "succeeded"
    assert result["records"] == result["total_records"]
    assert "from the centre" in shell.output_of("python train.py")


def gan(jobs: Jobs, name: str, workers: str, faults: str = "") -> Job:
    """The example's script for one epoch, with threads and logical ranks that fix its bits."""
    job = Job(jobs.home, name)
    options = ["--detach", "--job_name", name, "--threads", "1", "--workers", workers, "--logical_ranks", "4"]
    arguments = ["--epochs", "1", "--logical_ranks", "4", "--output", str(jobs.home / f"{name}.safetensors")]
    return jobs.launch(job, ["run", *options, str(EXAMPLES / "12-gan" / "train.py"), *arguments], faults)


@pytest.mark.slow
def test_a_worker_killed_between_the_updates_of_a_step_changes_no_bit_of_the_gan(jobs: Jobs) -> None:
    runs = {
        "undisturbed": gan(jobs, "undisturbed", "1:1"),
        "between": gan(jobs, "between", "2:2", "worker-1@9:applied=SIGKILL"),
        "reduced": gan(jobs, "reduced", "2:2", "worker-1@9:reduced=SIGKILL,worker-0@20:applied=SIGKILL"),
    }

    digests = {}
    for name, job in runs.items():
        result = job.result()
        assert result["phase"] == "succeeded", f"{result}\n{job.story()}"
        job.wait_gone()
        assert name == "undisturbed" or "worker-lost" in job.kinds(), job.story()
        digests[name] = digest(jobs.home / f"{name}.safetensors")

    assert len(set(digests.values())) == 1, digests
