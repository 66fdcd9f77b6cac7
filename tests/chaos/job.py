"""Runs one job of a campaign: starts it, injects the faults of its plan and checks its result."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from elasticdl.errors import ElasticDLError
from elasticdl.launcher.local.record import is_running
from elasticdl.spec.directory import read_json
from tests.chaos import processes
from tests.chaos.faulty import Faulty, can_build
from tests.chaos.injection import DATA, FaultInjector, NotApplicable, can_isolate, has_backups
from tests.chaos.schedule import WITH_PS, Fault, Kind, Plan, Strategy
from tests.integration import counting, job, tiny
from tests.integration.job import RECORDS, Job, Jobs

START_TIMEOUT_S = 120.0  # until it trains
END_TIMEOUT_S = 180.0  # from the last fault to the end
# From the end of the job to the end of its last process. A worker that hangs in its model is killed after the time it
# has to leave and to write a checkpoint: timing.grace_period_s and checkpoint.retry_s.
EXIT_TIMEOUT_S = 120.0
DISK_BYTES = 192 << 20
PAUSE_S = 0.1
EPOCHS = {Strategy.ALL_REDUCE: 24, Strategy.HYBRID: 40, Strategy.ASYNC: 50}
VALIDATION = 2000  # records that are evaluated by leases
BATCH = 5
STALL_S = 10  # longer than any fault lasts, so only deadlocks count as stalls
LEASES = ("--timing", "lease_s=10", "--timing", "lease_attempts=100")
ABANDONED_S = 4.0  # a job without launcher and master for this long does not come back by itself
STACKS_S = 2.0  # the time it takes to write them
MAX_RESUMES = 5  # of one job
TICK_S, POLL_S = 0.02, 0.1  # between two ticks of active faults; between two looks at the job


@dataclass
class Outcome:
    """The outcome of a job. `problem` is empty if it passed."""

    seed: int
    number: int
    strategy: str
    injected: dict[str, int] = field(default_factory=dict)  # "kill of worker": 7
    in_pairs: int = 0
    not_applicable: int = 0
    resumed: int = 0  # launcher and master were both gone, or the job ended and advised it
    ending: str = ""
    seconds: float = 0.0
    problem: str = ""
    commit: str = ""  # of the tested code

    @property
    def faults(self) -> int:
        return sum(self.injected.values())


class Problem(Exception):
    """The job broke a promise."""


def start(jobs: Jobs, name: str, strategy: Strategy, trained: Path, *, slow: bool) -> Job:
    trouble = jobs.home / f"{name}-trouble"
    modes: dict[str, Any] = {"slow": slow, "pause_s": PAUSE_S, "params": f"trouble={trouble}"}
    common = ["--failure_budget", "1000", "--stall_timeout", str(STALL_S)]
    if strategy is Strategy.ALL_REDUCE:
        return jobs.train(
            name, 3, "--num_epochs", str(EPOCHS[strategy]), "--min_workers", "1", "--checkpoint_steps", "8", *common,
            "--training_data", str(_write_data(jobs.home)), "--data_format", "csv", model="troubled_csv", **modes,
        )  # fmt: skip
    if strategy is Strategy.LEASES:
        return jobs.start(
            name, "evaluate", "--validation_data", "made-up", "--checkpoint_dir_for_init", str(trained),
            "--minibatch_size", str(BATCH), "--shard_records", "10", "--num_workers", "3", "--max_workers", "4",
            "--data_reader_params", f"records={VALIDATION}", *LEASES, *common, model="troubled", **modes,
        )  # fmt: skip
    epochs, batch = str(EPOCHS[strategy]), ["--minibatch_size", str(BATCH)]
    if strategy is Strategy.HYBRID:
        batch = ["--global_batch_size", str(4 * BATCH)]
    return jobs.start(
        name, "train", "--training_data", "made-up", "--num_epochs", epochs, *batch, "--num_workers", "2",
        "--max_workers", "4", "--logical_ranks", "4", "--num_ps_pods", "2", "--ps_backups", "1", "--ps_mode", strategy,
        "--embedding_on_ps", "all", "--checkpoint_steps", "10", *LEASES, *common, model="troubled_counting", **modes,
    )  # fmt: skip


def _write_data(home: Path) -> Path:
    """Writes the examples of `tiny.py` as a CSV file."""
    examples = tiny.Examples(RECORDS, nan_at=-1)
    lines = [",".join([*(f"x{number}" for number in range(tiny.FEATURES)), "label"])]
    for features, label in zip(examples.features.tolist(), examples.labels.tolist(), strict=True):
        lines.append(",".join(map(repr, [*features, label])))
    path = home / DATA
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def reference_results(directory: Path) -> dict[str, Any]:
    """Returns the results of undisturbed jobs, which are run once for each campaign."""
    file = directory / "reference.json"
    if not file.exists():
        jobs = Jobs(directory / "reference")
        try:
            undisturbed = start(jobs, "undisturbed", Strategy.ALL_REDUCE, Path(), slow=False)
            digest = undisturbed.digest()
            trained = undisturbed.directory.root / "checkpoints"
            evaluated = start(jobs, "evaluated", Strategy.LEASES, trained, slow=False).result()
        finally:
            jobs.end()
        results = {"digest": digest, "trained": str(trained), "metrics": evaluated["metrics"]}
        file.write_text(json.dumps(results, indent=1))
    loaded: dict[str, Any] = json.loads(file.read_text())
    return loaded


def run(plan: Plan, directory: Path) -> Outcome:
    """Runs a job in this process, which has its own network and mounts if that is possible."""
    expected = reference_results(directory)
    job_directory = directory / f"job-{plan.number}"
    shutil.rmtree(job_directory, ignore_errors=True)
    home = job_directory / "home"
    home.mkdir(parents=True)
    if can_isolate():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "chaos", str(home)], check=True)
    began = time.monotonic()
    outcome = Outcome(plan.seed, plan.number, plan.strategy)
    faulty = Faulty(job_directory, home) if can_build() else None
    os.environ.update(faulty.environ if faulty else {})
    jobs = Jobs(home)
    log: list[str] = []
    try:
        started = start(jobs, "job", plan.strategy, Path(expected["trained"]), slow=True)
        leaks = processes.Leaks()
        _JobRun(plan, started, outcome, log, FaultInjector(started, home, faulty, leaks), leaks).run(expected)
    except (Problem, AssertionError, ElasticDLError, OSError, subprocess.SubprocessError) as exc:
        outcome.problem = f"{type(exc).__name__}: {exc}"
        (job_directory / "problem.txt").write_text("\n".join([outcome.problem, *log]))
        _write_stacks(home)
        _kill_all(home)
        shutil.copytree(home, job_directory / "home-at-failure", dirs_exist_ok=True, ignore_dangling_symlinks=True)
    finally:
        _kill_all(home)
    outcome.seconds = round(time.monotonic() - began, 1)
    (job_directory / "log.txt").write_text("\n".join(log))
    (job_directory / "outcome.json").write_text(json.dumps(asdict(outcome)))
    return outcome


def _write_stacks(home: Path) -> None:
    """Makes all processes write their stacks into their logs."""
    for pid, command in processes.job_processes(home).items():
        if any(f"elasticdl.{role}" in command for role in ("master", "worker", "ps")):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT)
    time.sleep(STACKS_S)


def _kill_all(home: Path) -> None:
    for pid in processes.job_processes(home):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def count_rows(output: Path, epochs: int, batch: int) -> None:
    """Checks that every record is in the rows once an epoch: a lost or repeated record changes a row by one share."""
    words, records, share = counting.WORDS, counting.RECORDS, 1 / batch
    times = np.array([len(range(word, records, words)) for word in range(words)]) * epochs
    weights = load_file(output / "model.safetensors")
    order = np.argsort(counting.FAR * np.arange(words))
    for name, expected in (("moved.weight", times), ("own.stored.rows", times[order])):
        off = np.abs(weights[name][:, 0] - expected * share).max() / share
        if off > 0.25:  # sums of float32 are rounded
            raise Problem(f"{name}: a row was trained {off:.2f} times too often or too rarely")


class _JobRun:
    """From the first fault to the check of the result."""

    def __init__(
        self, plan: Plan, job: Job, outcome: Outcome, log: list[str], injector: FaultInjector, leaks: processes.Leaks
    ) -> None:
        self._plan, self._job, self._outcome, self._log, self._injector = plan, job, outcome, log, injector
        self._leaks = leaks
        self._injected: Counter[str] = Counter()
        self._abandoned_since: float | None = None
        self._journal_damaged = False
        self._look_at = self._measure_at = 0.0

    def run(self, expected: dict[str, Any]) -> None:
        self._wait_for_training()
        try:
            for fault in self._plan.faults:
                if not self._watch(time.monotonic() + fault.delay_s):
                    break  # the job has ended
                self._inject(fault)
        finally:
            self._injector.end()
            self._outcome.injected = dict(sorted(self._injected.items()))
        self._job.hurry()
        if self._watch(time.monotonic() + END_TIMEOUT_S):
            raise Problem(f"no end within {END_TIMEOUT_S:g} s of the last fault")
        self._check_end(expected)

    def _wait_for_training(self) -> None:
        needs_copies = self._plan.strategy in WITH_PS
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            status = self._job.status()
            assert status is not None, "the job ended before the first fault"
            is_training = status.records > 0 or status.shards_done > 0
            if is_training and (not needs_copies or has_backups(status)):
                return
            time.sleep(0.1)
        raise Problem(f"it did not begin to train within {START_TIMEOUT_S:g} s")

    def _inject(self, fault: Fault) -> None:
        try:
            description = self._injector.inject(fault, time.monotonic())
        except NotApplicable as exc:
            self._outcome.not_applicable += 1
            self._record(f"not applicable: {fault}: {exc}")
            return
        self._injected[str(fault)] += 1
        self._outcome.in_pairs += fault.delay_s == 0
        self._journal_damaged = self._journal_damaged or fault.kind is Kind.FLIP_JOURNAL
        self._record(description)

    def _watch(self, deadline: float) -> bool:
        """Watches the job until `deadline`. Returns False if it ended before."""
        while (now := time.monotonic()) < deadline:
            self._injector.tick(now)
            if now >= self._look_at:
                self._look_at = now + POLL_S
                if self._is_over() or self._is_abandoned(now):
                    return False
            if now >= self._measure_at:
                self._measure_at = now + 1.0
                self._leaks.measure(self._living(), now)
            time.sleep(TICK_S)
        return True

    def _living(self) -> dict[str, int]:
        return self._job.living() if self._job.directory.launcher.exists() else {}

    def _is_abandoned(self, now: float) -> bool:
        """Resumes a job whose launcher and master died together, as its status advises the user."""
        if is_running(self._job.directory) or self._job.directory.result.exists():
            self._abandoned_since = None
            return False
        self._abandoned_since = self._abandoned_since or now
        if now - self._abandoned_since < ABANDONED_S:
            return False
        self._abandoned_since = None
        if self._journal_damaged or self._plan.strategy is Strategy.LEASES:
            return True  # its status is checked instead
        self._resume()
        return False

    def _is_over(self) -> bool:
        """Whether the job has ended; one that advises --resume is resumed."""
        result = read_json(self._job.directory.result)
        if result is None:
            return False
        can_resume = self._plan.strategy is not Strategy.LEASES and self._outcome.resumed < MAX_RESUMES
        if result["phase"] != "failed" or "--resume" not in result["reason"] or not can_resume:
            return True
        self._record(f"ended: {result['reason']}")
        self._resume()
        return False

    def _resume(self) -> None:
        self._injector.end()  # a user would first free the disk and wait for the end of all processes
        deadline = time.monotonic() + EXIT_TIMEOUT_S
        while is_running(self._job.directory) and time.monotonic() < deadline:
            time.sleep(0.1)
        completed = self._job.command("train", "--detach", "--resume", "--job_name", self._job.name)
        if completed.returncode != 0:
            raise Problem(f"it could not be resumed: {completed.stdout}{completed.stderr}")
        self._outcome.resumed += 1
        self._record(f"resumed: {completed.stdout}{completed.stderr}".strip())

    def _check_end(self, expected: dict[str, Any]) -> None:
        result = read_json(self._job.directory.result)
        if result is None:
            self._check_status_text(self._job.command("status", self._job.name))
        elif self._journal_damaged and result["phase"] == "failed":
            self._outcome.ending = f"explained: {result['reason']}"
            if "journal" not in result["reason"]:
                raise Problem(f"the journal was damaged, and the reason is another: {result}")
        else:
            self._outcome.ending = result["phase"]
            if result["phase"] != "succeeded" or result["exit_code"] != 0:
                raise Problem(f"it did not succeed: {result}")
            self._check_result(result, expected)
        self._check_leftovers()

    def _check_status_text(self, status: subprocess.CompletedProcess[str]) -> None:
        """Without launcher and master, the status must say so, and what to do."""
        text = status.stdout + status.stderr
        self._outcome.ending = f"explained: {text.strip()[:300]}"
        self._record(text)
        if not text.strip() or "Traceback" in text:
            raise Problem(f"it is over, and its status does not say why: {text!r}")
        stopped = self._job.command("stop", self._job.name)
        self._record(stopped.stdout + stopped.stderr)

    def _check_result(self, result: dict[str, Any], expected: dict[str, Any]) -> None:
        strategy = self._plan.strategy
        if strategy is Strategy.LEASES:
            if result["metrics"] != expected["metrics"] or result["records"] != VALIDATION:
                raise Problem(f"expected {expected['metrics']} of {VALIDATION} records, found {result}")
            return
        if result["records"] != result["total_records"]:
            raise Problem(f"records were lost, or trained twice: {result}")
        if strategy is Strategy.ALL_REDUCE:
            if (digest := job.digest(self._job.output / "model.safetensors")) != expected["digest"]:
                raise Problem(f"the model differs from that of an undisturbed run: {digest}")
            return
        count_rows(self._job.output, EPOCHS[strategy], BATCH if strategy is Strategy.ASYNC else 4 * BATCH)
        if "restored" in self._job.kinds() and not self._outcome.resumed:
            raise Problem("a slot lost its ps and its backup")

    def _check_leftovers(self) -> None:
        deadline = time.monotonic() + EXIT_TIMEOUT_S
        while remaining := processes.job_processes(self._job.directory.root.parents[1]):
            if time.monotonic() > deadline:
                raise Problem(f"processes remain {EXIT_TIMEOUT_S:g} s after the end: {remaining}")
            time.sleep(0.1)
        if leaks := self._leaks.find_leaks():
            raise Problem("; ".join(leaks))

    def _record(self, message: str) -> None:
        self._log.append(f"{time.time():.2f} {message}")
