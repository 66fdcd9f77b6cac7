"""One job of a campaign: started, struck by the faults of its plan, and judged by what it left."""

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
from tests.chaos.schedule import WITH_PS, Fault, Kind, Plan, Strategy
from tests.chaos.striking import DATA, NotDue, Striker, can_isolate, is_whole
from tests.integration import counting, job, tiny
from tests.integration.job import RECORDS, Job, Jobs

BEGIN_S = 120.0  # until it trains
END_S = 180.0  # from the last fault to the end
# From the end to that of the last process. A worker that stands still in its model is killed when it had the time to
# leave and to write a checkpoint: timing.grace_period_s and checkpoint.retry_s.
GONE_S = 120.0
DISK_BYTES = 192 << 20
PAUSE_S = 0.1
EPOCHS = {Strategy.ALL_REDUCE: 24, Strategy.HYBRID: 40, Strategy.ASYNC: 50}
VALIDATION = 2000  # records that are evaluated by leases
BATCH = 5
STALL_S = 10  # longer than any fault lasts: only a deadlock is one
LEASES = ("--timing", "lease_s=10", "--timing", "lease_attempts=100")
UNKEPT_S = 4.0  # without launcher and master for so long: nobody will bring the job back by itself
STACKS_S = 2.0  # the time it takes to write them
MOST_RESUMED = 5  # of one job
TICK_S, LOOK_S = 0.02, 0.1  # between two turns of faults that last, and two looks at the job


@dataclass
class Outcome:
    """What came of it. `problem` is empty where all was as it should be."""

    seed: int
    number: int
    strategy: str
    struck: dict[str, int] = field(default_factory=dict)  # "kill of worker": 7
    in_pairs: int = 0
    not_due: int = 0
    resumed: int = 0  # launcher and master were both gone, or the job ended and advised it
    ending: str = ""
    seconds: float = 0.0
    problem: str = ""
    commit: str = ""  # of the code that was struck

    @property
    def faults(self) -> int:
        return sum(self.struck.values())


class Problem(Exception):
    """The job did not do what was promised."""


def start(jobs: Jobs, name: str, strategy: Strategy, trained: Path, *, slow: bool) -> Job:
    trouble = jobs.home / f"{name}-trouble"
    how: dict[str, Any] = {"slow": slow, "pause_s": PAUSE_S, "params": f"trouble={trouble}"}
    common = ["--failure_budget", "1000", "--stall_timeout", str(STALL_S)]
    if strategy is Strategy.ALL_REDUCE:
        return jobs.train(
            name, 3, "--num_epochs", str(EPOCHS[strategy]), "--min_workers", "1", "--checkpoint_steps", "8", *common,
            "--training_data", str(_write_data(jobs.home)), "--data_format", "csv", model="troubled_csv", **how,
        )  # fmt: skip
    if strategy is Strategy.LEASES:
        return jobs.start(
            name, "evaluate", "--validation_data", "made-up", "--checkpoint_dir_for_init", str(trained),
            "--minibatch_size", str(BATCH), "--shard_records", "10", "--num_workers", "3", "--max_workers", "4",
            "--data_reader_params", f"records={VALIDATION}", *LEASES, *common, model="troubled", **how,
        )  # fmt: skip
    epochs, batch = str(EPOCHS[strategy]), ["--minibatch_size", str(BATCH)]
    if strategy is Strategy.HYBRID:
        batch = ["--global_batch_size", str(4 * BATCH)]
    return jobs.start(
        name, "train", "--training_data", "made-up", "--num_epochs", epochs, *batch, "--num_workers", "2",
        "--max_workers", "4", "--logical_ranks", "4", "--num_ps_pods", "2", "--ps_backups", "1", "--ps_mode", strategy,
        "--embedding_on_ps", "all", "--checkpoint_steps", "10", *LEASES, *common, model="troubled_counting", **how,
    )  # fmt: skip


def _write_data(home: Path) -> Path:
    """The examples of `tiny.py`, as lines of a file."""
    examples = tiny.Examples(RECORDS, nan_at=-1)
    lines = [",".join([*(f"x{number}" for number in range(tiny.FEATURES)), "label"])]
    for features, label in zip(examples.features.tolist(), examples.labels.tolist(), strict=True):
        lines.append(",".join(map(repr, [*features, label])))
    path = home / DATA
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def reference(directory: Path) -> dict[str, Any]:
    """What undisturbed jobs end with; made once a campaign."""
    file = directory / "reference.json"
    if not file.exists():
        jobs = Jobs(directory / "undisturbed")
        try:
            calm = start(jobs, "calm", Strategy.ALL_REDUCE, Path(), slow=False)
            digest = calm.digest()
            trained = calm.directory.root / "checkpoints"
            evaluated = start(jobs, "evaluated", Strategy.LEASES, trained, slow=False).result()
        finally:
            jobs.end()
        known = {"digest": digest, "trained": str(trained), "metrics": evaluated["metrics"]}
        file.write_text(json.dumps(known, indent=1))
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def run(plan: Plan, directory: Path) -> Outcome:
    """In a process of its own, with a network and mounts of its own where that can be."""
    known = reference(directory)
    kept = directory / f"job-{plan.number}"
    shutil.rmtree(kept, ignore_errors=True)
    home = kept / "home"
    home.mkdir(parents=True)
    if can_isolate():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "chaos", str(home)], check=True)
    began = time.monotonic()
    outcome = Outcome(plan.seed, plan.number, plan.strategy)
    faulty = Faulty(kept, home) if can_build() else None
    os.environ.update(faulty.environ if faulty else {})
    jobs = Jobs(home)
    story: list[str] = []
    try:
        started = start(jobs, "job", plan.strategy, Path(known["trained"]), slow=True)
        leaks = processes.Leaks()
        _Run(plan, started, outcome, story, Striker(started, home, faulty, leaks), leaks).run(known)
    except (Problem, AssertionError, ElasticDLError, OSError, subprocess.SubprocessError) as exc:
        outcome.problem = f"{type(exc).__name__}: {exc}"
        (kept / "problem.txt").write_text("\n".join([outcome.problem, *story]))
        _write_stacks(home)
        _end(home)
        shutil.copytree(home, kept / "found", dirs_exist_ok=True, ignore_dangling_symlinks=True)
    finally:
        _end(home)
    outcome.seconds = round(time.monotonic() - began, 1)
    (kept / "story.txt").write_text("\n".join(story))
    (kept / "outcome.json").write_text(json.dumps(asdict(outcome)))
    return outcome


def _write_stacks(home: Path) -> None:
    """Where everybody is, into their logs: what a job does that does not end."""
    for pid, command in processes.of_home(home).items():
        if any(f"elasticdl.{role}" in command for role in ("master", "worker", "ps")):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT)
    time.sleep(STACKS_S)


def _end(home: Path) -> None:
    for pid in processes.of_home(home):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def count_rows(output: Path, epochs: int, batch: int) -> None:
    """Every record is in the rows once an epoch: a row is off by a whole share where one is lost or doubled."""
    words, records, share = counting.WORDS, counting.RECORDS, 1 / batch
    times = np.array([len(range(word, records, words)) for word in range(words)]) * epochs
    weights = load_file(output / "model.safetensors")
    order = np.argsort(counting.FAR * np.arange(words))
    for name, expected in (("moved.weight", times), ("own.stored.rows", times[order])):
        off = np.abs(weights[name][:, 0] - expected * share).max() / share
        if off > 0.25:  # sums of so many float32 are rounded
            raise Problem(f"{name}: a row was trained {off:.2f} times too often or too seldom")


class _Run:
    """From the first fault to the verdict."""

    def __init__(
        self, plan: Plan, job: Job, outcome: Outcome, story: list[str], striker: Striker, leaks: processes.Leaks
    ) -> None:
        self._plan, self._job, self._outcome, self._story, self._striker = plan, job, outcome, story, striker
        self._leaks = leaks
        self._struck: Counter[str] = Counter()
        self._unkept_since: float | None = None
        self._journal_damaged = False
        self._look_at = self._measure_at = 0.0

    def run(self, known: dict[str, Any]) -> None:
        self._await_begin()
        try:
            for fault in self._plan.faults:
                if not self._until(time.monotonic() + fault.after_s):
                    break  # it is over
                self._strike(fault)
        finally:
            self._striker.end()
            self._outcome.struck = dict(sorted(self._struck.items()))
        self._job.hurry()
        if self._until(time.monotonic() + END_S):
            raise Problem(f"no end within {END_S:g} s of the last fault")
        self._judge(known)

    def _await_begin(self) -> None:
        needs_copies = self._plan.strategy in WITH_PS
        deadline = time.monotonic() + BEGIN_S
        while time.monotonic() < deadline:
            status = self._job.status()
            assert status is not None, "it was over before the first fault"
            has_begun = status.records > 0 or status.shards_done > 0
            if has_begun and (not needs_copies or is_whole(status)):
                return
            time.sleep(0.1)
        raise Problem(f"it did not begin within {BEGIN_S:g} s")

    def _strike(self, fault: Fault) -> None:
        try:
            told = self._striker.strike(fault, time.monotonic())
        except NotDue as exc:
            self._outcome.not_due += 1
            self._tell(f"not due: {fault}: {exc}")
            return
        self._struck[str(fault)] += 1
        self._outcome.in_pairs += fault.after_s == 0
        self._journal_damaged = self._journal_damaged or fault.kind is Kind.FLIP_JOURNAL
        self._tell(told)

    def _until(self, deadline: float) -> bool:
        """Look after the job until then; False where it ended before."""
        while (now := time.monotonic()) < deadline:
            self._striker.tick(now)
            if now >= self._look_at:
                self._look_at = now + LOOK_S
                if self._is_over() or self._is_given_up(now):
                    return False
            if now >= self._measure_at:
                self._measure_at = now + 1.0
                self._leaks.measure(self._living(), now)
            time.sleep(TICK_S)
        return True

    def _living(self) -> dict[str, int]:
        return self._job.living() if self._job.directory.launcher.exists() else {}

    def _is_given_up(self, now: float) -> bool:
        """Launcher and master may die together: somebody goes on with the job, as its status advises."""
        if is_running(self._job.directory) or self._job.directory.result.exists():
            self._unkept_since = None
            return False
        self._unkept_since = self._unkept_since or now
        if now - self._unkept_since < UNKEPT_S:
            return False
        self._unkept_since = None
        if self._journal_damaged or self._plan.strategy is Strategy.LEASES:
            return True  # judged by what it says
        self._resume()
        return False

    def _is_over(self) -> bool:
        """A job that ended and says that --resume goes on with it is taken at its word."""
        result = read_json(self._job.directory.result)
        if result is None:
            return False
        can_resume = self._plan.strategy is not Strategy.LEASES and self._outcome.resumed < MOST_RESUMED
        if result["phase"] != "failed" or "--resume" not in result["reason"] or not can_resume:
            return True
        self._tell(f"ended: {result['reason']}")
        self._resume()
        return False

    def _resume(self) -> None:
        self._striker.end()  # a person would not try on a disk that is full, or before all is over
        deadline = time.monotonic() + GONE_S
        while is_running(self._job.directory) and time.monotonic() < deadline:
            time.sleep(0.1)
        done = self._job.command("train", "--detach", "--resume", "--job_name", self._job.name)
        if done.returncode != 0:
            raise Problem(f"it could not be resumed: {done.stdout}{done.stderr}")
        self._outcome.resumed += 1
        self._tell(f"resumed: {done.stdout}{done.stderr}".strip())

    def _judge(self, known: dict[str, Any]) -> None:
        result = read_json(self._job.directory.result)
        if result is None:
            self._judge_words(self._job.command("status", self._job.name))
        elif self._journal_damaged and result["phase"] == "failed":
            self._outcome.ending = f"told: {result['reason']}"
            if "journal" not in result["reason"]:
                raise Problem(f"the journal was damaged, and the end speaks of something else: {result}")
        else:
            self._outcome.ending = result["phase"]
            if result["phase"] != "succeeded" or result["exit_code"] != 0:
                raise Problem(f"it ended otherwise: {result}")
            self._judge_result(result, known)
        self._judge_rest()

    def _judge_words(self, status: subprocess.CompletedProcess[str]) -> None:
        """Without launcher and master: the status says so, and what to do."""
        said = status.stdout + status.stderr
        self._outcome.ending = f"told: {said.strip()[:300]}"
        self._tell(said)
        if not said.strip() or "Traceback" in said:
            raise Problem(f"it is over, and its status does not say why: {said!r}")
        stopped = self._job.command("stop", self._job.name)
        self._tell(stopped.stdout + stopped.stderr)

    def _judge_result(self, result: dict[str, Any], known: dict[str, Any]) -> None:
        strategy = self._plan.strategy
        if strategy is Strategy.LEASES:
            if result["metrics"] != known["metrics"] or result["records"] != VALIDATION:
                raise Problem(f"expected {known['metrics']} of {VALIDATION} records, found {result}")
            return
        if result["records"] != result["total_records"]:
            raise Problem(f"records were lost, or trained twice: {result}")
        if strategy is Strategy.ALL_REDUCE:
            if (found := job.digest(self._job.output / "model.safetensors")) != known["digest"]:
                raise Problem(f"other bits than those of an undisturbed run: {found}")
            return
        count_rows(self._job.output, EPOCHS[strategy], BATCH if strategy is Strategy.ASYNC else 4 * BATCH)
        if "restored" in self._job.kinds() and not self._outcome.resumed:
            raise Problem("a slot lost both of its holders")

    def _judge_rest(self) -> None:
        deadline = time.monotonic() + GONE_S
        while left := processes.of_home(self._job.directory.root.parents[1]):
            if time.monotonic() > deadline:
                raise Problem(f"processes are left {GONE_S:g} s after the end: {left}")
            time.sleep(0.1)
        if leaks := self._leaks.found():
            raise Problem("; ".join(leaks))

    def _tell(self, what: str) -> None:
        self._story.append(f"{time.time():.2f} {what}")
