"""How soon training begins: from the typed command to the first step, and from a worker's launch until it takes part.

    python benchmarks/start.py [--quick] [--repeats N] [--json FILE]

The first part trains the digits of the zoo with `elasticdl train`, the same model and data as a script with
`elasticdl run`, and as a script for DistributedDataParallel with `torchrun`; they take turns. The second adds workers
to a running job and kills some, which are replaced; its peer is the same job with `--start_method=spawn`, where each
worker imports torch itself. Memory is what all workers of that job hold together: pages that several share count once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import table
from models.stamped_digits import STAMP_FILE
from table import Row

from elasticdl.launcher.local import processes
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.env import HOME
from elasticdl.zoo.digits.data import write_data

BENCHMARKS = Path(__file__).parent
BATCH, EPOCHS = 64, 1
FIRST_STEP_GOAL_S = 2.5
JOIN_GOAL_S = 0.7
TIMEOUT_S = 180.0
POLL_S = 0.02
FIRST_WORKERS, ALL_WORKERS = 2, 4


@dataclass(slots=True)
class StartTimes:
    """Seconds of several repeats."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def worst(self) -> float:
        return max(self.seconds)


class Bench:
    """The directory of one run, with its jobs and data."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._jobs = 0
        self.data, _ = write_data(root / "data")
        self._environ = {
            **os.environ,
            HOME: str(root / "home"),
            "PYTHONPATH": os.pathsep.join([str(BENCHMARKS.parent / "src"), os.environ.get("PYTHONPATH", "")]),
        }

    def time_first_step(self, command: list[str]) -> float:
        """Runs the command to its end. Returns the seconds from its start to the end of its first step."""
        stamp = self._root / "stamp"
        stamp.unlink(missing_ok=True)
        started_at = time.time()
        finished = subprocess.run(
            command, env=self._environ | {STAMP_FILE: str(stamp)}, capture_output=True, text=True, timeout=TIMEOUT_S,
            check=False,
        )  # fmt: skip
        if not stamp.exists():  # a failure after the first step does not matter: gloo may abort at the end
            raise RuntimeError(f"{command} failed:\n{finished.stdout}{finished.stderr}")
        return float(stamp.read_text()) - started_at

    def train_command(self, workers: int) -> list[str]:
        return [
            sys.executable, "-m", "elasticdl.cli", "train", f"--model_zoo={BENCHMARKS / 'models'}",
            "--model_def=stamped_digits.forward", f"--training_data={self.data}", f"--num_epochs={EPOCHS}",
            f"--minibatch_size={BATCH}", f"--num_workers={workers}", "--threads=1", f"--job_name={self._next_name()}",
        ]  # fmt: skip

    def run_command(self, workers: int) -> list[str]:
        return [
            sys.executable, "-m", "elasticdl.cli", "run", f"--workers={workers}", "--threads=1",
            f"--job_name={self._next_name()}", str(BENCHMARKS / "models" / "digits_script.py"),
            str(self.data), str(BATCH), str(EPOCHS),
        ]  # fmt: skip

    def torchrun_command(self, workers: int) -> list[str]:
        script = BENCHMARKS / "peers" / "digits_ddp.py"
        return [
            sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={workers}", str(script),
            str(self.data), str(BATCH), str(EPOCHS),
        ]  # fmt: skip

    def start_job(self, start_method: str) -> JobDirectory:
        """Starts a job whose workers sleep most of the time, so that the processor is free for those that start."""
        name = self._next_name()
        command = [
            sys.executable, "-m", "elasticdl.cli", "train", "--detach", "--model_def=paced.paced.forward",
            f"--model_zoo={BENCHMARKS.parent / 'src' / 'elasticdl' / 'zoo'}", "--training_data=made-up",
            "--data_format=python", "--model_params=pause_s=0.05", "--num_epochs=100000", "--threads=1",
            f"--num_workers={FIRST_WORKERS}", f"--max_workers={ALL_WORKERS}", f"--start_method={start_method}",
            "--min_workers=1", "--failure_budget=1000", f"--job_name={name}",
        ]  # fmt: skip
        subprocess.run(command, env=self._environ, check=True, capture_output=True, timeout=TIMEOUT_S)
        return JobDirectory(self._root / "home" / "jobs" / name)

    def scale(self, name: str, workers: int) -> None:
        command = [sys.executable, "-m", "elasticdl.cli", "scale", name, "--workers", str(workers)]
        subprocess.run(command, env=self._environ, check=True, capture_output=True, timeout=TIMEOUT_S)

    def _next_name(self) -> str:
        self._jobs += 1
        return f"start-{os.getpid()}-{self._jobs}"


def read_events(directory: JobDirectory) -> list[dict[str, Any]]:
    if not directory.events.exists():
        return []
    *lines, _ = directory.events.read_text().split("\n")
    return [json.loads(line) for line in lines]


def join_seconds(directory: JobDirectory) -> dict[str, float]:
    """Returns the seconds from launched to joined of each worker that has joined."""
    launched: dict[str, float] = {}
    joined: dict[str, float] = {}
    for event in read_events(directory):
        if event["kind"] == "worker-launched":
            launched[event["replica"]] = event["at"]
        elif event["kind"] == "worker-joined" and event["replica"] in launched:
            joined.setdefault(event["replica"], event["at"] - launched[event["replica"]])
    return joined


def wait_until(description: str, is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {TIMEOUT_S:g} s for {description}")
        time.sleep(POLL_S)


def proportional_bytes(pid: int) -> int:
    """Returns the memory of a process; of a page that n processes share, each counts an n-th."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


@dataclass(slots=True)
class JoinResult:
    added: StartTimes
    replaced: StartTimes
    memory_bytes: int  # of all workers and the fork server, where there is one


def measure_joins(bench: Bench, start_method: str, repeats: int) -> JoinResult:
    """Adds workers to a running job, then kills them one after another."""
    directory = bench.start_job(start_method)
    try:
        wait_until("the first workers", lambda: len(join_seconds(directory)) == FIRST_WORKERS)
        first_workers = set(join_seconds(directory))
        bench.scale(directory.root.name, ALL_WORKERS)
        wait_until("more workers", lambda: len(join_seconds(directory)) == ALL_WORKERS)
        added = set(join_seconds(directory)) - first_workers
        time.sleep(1.0)
        replicas = processes.find_replicas(directory)
        memory_bytes = sum(proportional_bytes(replica.pid) for replica in replicas)
        job_processes = processes.find_processes(directory)
        launcher = next(process.pid for process in job_processes if process.replica == processes.LAUNCHER)
        children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        servers = [pid for pid in children if "fork_server" in Path(f"/proc/{pid}/cmdline").read_text()]
        memory_bytes += sum(proportional_bytes(int(pid)) for pid in servers)
        for killed in range(1, repeats + 1):
            victim = processes.find_replicas(directory)[0]
            os.kill(victim.pid, signal.SIGKILL)
            wait_until("a replacement", lambda count=ALL_WORKERS + killed: len(join_seconds(directory)) == count)  # type: ignore[misc]
            time.sleep(1.0)
        seconds = join_seconds(directory)
        return JoinResult(
            StartTimes([seconds[worker] for worker in added]),
            StartTimes([value for worker, value in seconds.items() if worker not in first_workers | added]),
            memory_bytes,
        )
    finally:
        processes.kill_processes(directory)


def measure_first_steps(bench: Bench, workers: int, repeats: int) -> tuple[StartTimes, StartTimes, StartTimes]:
    """Times `elasticdl train`, `elasticdl run` and `torchrun` in turn. The first of each is a warm-up."""
    times = (StartTimes(), StartTimes(), StartTimes())
    for repeat in range(repeats + 1):
        commands = (bench.train_command(workers), bench.run_command(workers), bench.torchrun_command(workers))
        for command, start_times in zip(commands, times, strict=True):
            seconds = bench.time_first_step(command)
            if repeat:
                start_times.seconds.append(seconds)
    return times


def rows_of(measure: str, ours: StartTimes, peer: StartTimes, peer_name: str, goal_s: float) -> list[Row]:
    met = ours.median <= goal_s
    return [
        Row(f"{measure}, median", "s", ours.median, peer.median, peer_name, f"≤ {goal_s:g}", met),
        Row(f"{measure}, worst", "s", ours.worst, peer.worst, peer_name),
    ]


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one repeat of each: to see that it runs")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    options = parser.parse_args(argv)
    repeats = 1 if options.quick else options.repeats
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="start-") as root:
        bench = Bench(Path(root))
        for workers in (1, 2):
            train, run, peer = measure_first_steps(bench, workers, repeats)
            count = f"{workers} worker{'s' if workers > 1 else ''}"
            rows += rows_of(f"command to first step, {count}", train, peer, "torchrun", FIRST_STEP_GOAL_S)
            rows += rows_of(f"`elasticdl run` to first step, {count}", run, peer, "torchrun", FIRST_STEP_GOAL_S)
        forked, spawned = (measure_joins(bench, method, repeats) for method in ("fork", "spawn"))
        rows += rows_of("launched to joined, added worker", forked.added, spawned.added, "spawn", JOIN_GOAL_S)
        rows += rows_of("launched to joined, replaced worker", forked.replaced, spawned.replaced, "spawn", JOIN_GOAL_S)
        memory = f"memory of {ALL_WORKERS} workers"
        rows.append(Row(memory, "MB", forked.memory_bytes / 1e6, spawned.memory_bytes / 1e6, "spawn"))
    notes = [f"{repeats} repeats; {table.machine()}. Memory with fork includes the process that forks."]
    table.show("Start", rows, notes=notes)
    if options.json:
        table.write(options.json, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
