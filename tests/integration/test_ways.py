"""The four ways of ARCHITECTURE.md in real runs: each of their files is passed, in the order of its table.

How many files a way passes in all is printed (pytest -s); a reader needs those of the table.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from elasticdl.scheduler.local.queue import SubmissionQueue
from elasticdl.zoo.digits import data as digits
from tests import native
from tests.waiting import until

ROOT = Path(__file__).parents[2]
ZOO = Path(__file__).parent
TIMEOUT_S = 240.0
MAX_FILES = {1: 50, 2: 16, 3: 22, 4: 30}
CLI, LAUNCHER, MASTER = "cli/main.py", "launcher/__main__.py", "master/__main__.py"
WORKER, PS = "worker/__main__.py", "ps/__main__.py"


@dataclass(frozen=True)
class TracedProcess:
    """Files that a process passed: before the function that begins the way, from there until its end, and later."""

    before: tuple[str, ...]
    way: tuple[str, ...]
    passed_at: dict[str, int]
    ended_at: int | None

    def has_passed(self, file: str) -> bool:
        return file in self.passed_at


class Way:
    """Runs `elasticdl` with every process traced."""

    def __init__(self, directory: Path, begin: Sequence[str], end: Sequence[str]) -> None:
        self.home = directory / "home"
        self.trace = directory / "trace"
        self.trace.mkdir()
        self._environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ZOO / "traced", ROOT))),
            "ELASTICDL_HOME": str(self.home),
            "KUBECONFIG": str(directory / "none"),
            "TRACE_DIRECTORY": str(self.trace),
            "TRACE_FROM": ",".join(begin),
            "TRACE_UNTIL": ",".join(end),
        }
        self._directory = directory

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "elasticdl.cli", *words],
            env=self._environ,
            cwd=self._directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str) -> None:
        process = self.start(*words)
        output, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, output

    def processes(self) -> list[TracedProcess]:
        return [parse_trace(path.read_text()) for path in self.trace.iterdir()]


def parse_trace(text: str) -> TracedProcess:
    before: list[str] = []
    way: list[str] = []
    passed_at: dict[str, int] = {}
    has_begun, ended_at = False, None
    for line in text.splitlines():
        at_ns, kind, path = line.split()
        if kind == "begin":
            has_begun = True
        elif kind == "end":
            ended_at = int(at_ns)
        else:
            passed_at.setdefault(path, int(at_ns))
            if ended_at is None:
                (way if has_begun else before).append(path)
    return TracedProcess(tuple(before), tuple(way), passed_at, ended_at)


def tables(number: int) -> list[list[str]]:
    """The files of a way, table by table."""
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("## Four ways")[2].partition("## Ideas")[0]
    section = re.split(r"^### \d\. .*$", text, flags=re.MULTILINE)[number]
    rows = re.findall(r"^\| +(\d+) \| `([^`]+\.py)`", section, flags=re.MULTILINE)
    starts = [index for index, (row, _) in enumerate(rows) if row == "1"]
    files = [file for _, file in rows]
    return [files[start:stop] for start, stop in zip(starts, [*starts[1:], len(files)], strict=True)]


def assert_in_order(orders: Sequence[Sequence[str]], files: Sequence[str]) -> None:
    """Asserts that at least one process passed the files in this order."""
    passed = [[file for file in dict.fromkeys(order) if file in files] for order in orders]
    assert list(files) in passed, f"expected {list(files)}, passed {passed}"


def count_files(processes: Sequence[TracedProcess], ended_at: int) -> set[str]:
    return {file for process in processes for file, at_ns in process.passed_at.items() if at_ns <= ended_at}


def first_end(processes: Sequence[TracedProcess]) -> int:
    return min(process.ended_at for process in processes if process.ended_at is not None)


@pytest.fixture
def zoo(tmp_path: Path) -> list[str]:
    """The arguments of a job of the digits."""
    digits.write_data(tmp_path / "data")
    model = ("--model_zoo", str(ROOT / "examples" / "01-train-a-model"), "--model_def=model.forward")
    return ["train", *model, f"--training_data={tmp_path / 'data' / 'train.csv'}", "--num_epochs=1", "--job_name=way"]


def test_no_way_is_longer_than_its_limit() -> None:
    assert {number: sum(map(len, tables(number))) <= limit for number, limit in MAX_FILES.items()} == {
        1: True, 2: True, 3: True, 4: True
    }  # fmt: skip


@pytest.mark.slow
def test_from_elasticdl_train_to_the_first_update(tmp_path: Path, zoo: list[str]) -> None:
    way = Way(tmp_path, ["worker/rounds/engine.py:_make_step:1"], ["worker/training/state.py:end_step"])
    way.run(*zoo, "--num_workers=2")

    processes = way.processes()
    start, step = tables(1)
    launcher = start.index("launcher/local/loop.py")
    master, worker = launcher + 1, start.index("worker/__main__.py")
    parts = {
        CLI: start[:launcher],
        LAUNCHER: start[launcher:master],
        MASTER: start[master:worker],
        WORKER: start[worker:],
    }
    for process, files in parts.items():
        assert_in_order([traced.before + traced.way for traced in processes if traced.has_passed(process)], files)
    assert_in_order([traced.way for traced in processes], step)
    print(f"\n1: {len(count_files(processes, first_end(processes)))} files in all")
    print(f"1, the step: {max(len(traced.way) for traced in processes if traced.has_passed(WORKER))} files in all")


@pytest.mark.slow
def test_a_push_to_a_ps(tmp_path: Path) -> None:
    native.require()
    way = Way(
        tmp_path,
        ["model/embeddings/layers.py:backward:3", "ps/tables/state.py:_push:3"],
        ["worker/embeddings/hybrid.py:after_reduce", "ps/server/backup_forwarder.py:completed_replies"],
    )
    way.run(
        "train", "--training_data=made-up", "--data_format=python", f"--model_zoo={ZOO}",
        "--model_def=counting.forward", "--model_params=slow=/nowhere;pause_s=0.0", "--num_epochs=2",
        "--global_batch_size=20", "--logical_ranks=4", "--num_workers=2", "--num_ps_pods=2", "--ps_backups=1",
        "--embedding_on_ps=all", "--job_name=way", f"--output={tmp_path / 'output'}",
    )  # fmt: skip

    processes = way.processes()
    (files,) = tables(2)
    workers = [traced.way for traced in processes if traced.has_passed(WORKER)]
    servers = [traced.way for traced in processes if traced.has_passed(PS)]
    assert_in_order(workers, files[:6])
    assert_in_order(servers, files[7:])
    assert all(traced.has_passed(files[6]) for traced in processes if traced.has_passed(PS))
    passed = {file for order in (*workers, *servers) for file in order}
    print(f"\n2: {len(passed | {files[6]})} files in all")


@pytest.mark.slow
def test_a_scheduling_decision(tmp_path: Path, zoo: list[str]) -> None:
    way = Way(tmp_path, ["scheduler/local/server.py:_run_step:1"], ["scheduler/local/executor.py:reap_children"])
    way.run(*zoo, "--num_workers=1", "--queue", "--detach")

    scheduler = way.start("scheduler", "--budget=2", "--policy=goodput")
    try:
        queue = SubmissionQueue(way.home)
        until("an empty queue", lambda: not queue.job_names(), TIMEOUT_S)
    finally:
        scheduler.terminate()
        output, _ = scheduler.communicate(timeout=TIMEOUT_S)

    (server,) = [traced for traced in way.processes() if traced.ended_at is not None]
    (files,) = tables(3)
    assert_in_order([server.way], files), output
    print(f"\n3: {len(server.way)} files in all")


@pytest.mark.slow
def test_from_ctr_yaml_to_a_model(tmp_path: Path) -> None:
    rows = [f"{number % 3 == 0:d},{number * 7 % 100},c{number % 17}" for number in range(2000)]
    (tmp_path / "clicks.csv").write_text("clicked,price,city\n" + "\n".join(rows) + "\n")
    (tmp_path / "ctr.yaml").write_text(
        "data: clicks.csv\nlabel: clicked\nmodel: {deepfm: {embedding_dim: 4, hidden_units: [16]}}\n"
        "training: {epochs: 1, batch_size: 128}\nreport: false\n"
    )
    way = Way(tmp_path, ["worker/rounds/engine.py:_make_step:1"], ["worker/training/state.py:end_step"])
    way.run("train", "ctr.yaml", "--job_name=way")

    processes = way.processes()
    (files,) = tables(4)
    assert_in_order([traced.before for traced in processes if traced.has_passed(CLI)], files[:8])
    assert_in_order([traced.before + traced.way for traced in processes if traced.has_passed(WORKER)], files[8:])
    print(f"\n4: {len(count_files(processes, first_end(processes)))} files in all, those of 1 among them")
