"""A campaign: runs jobs, each in its own process, until a number of faults was injected. It can be continued."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.chaos import injection
from tests.chaos.job import Outcome, reference_results
from tests.chaos.schedule import Kind, Plan, plan_job

ROOT = Path(__file__).parents[2]
JOB_S = 600.0  # more than a job can take, all its own limits included


class UnavailableFaultsError(Exception):
    """The campaign has faults that this machine cannot inject."""


class JobNumbers:
    """Hands out job numbers to concurrent runners and counts their faults.

    A job that failed is run again once the code has changed.
    """

    def __init__(self, done: list[Outcome], faults: int, until: float, commit: str = "") -> None:
        self.lock = threading.Lock()
        self.faults = faults
        self.injected = 0
        self.is_over = False
        self._until = until
        self._newest: dict[int, Outcome] = {}  # of each job
        self._number = 0
        for outcome in done:
            self.add(outcome)
        self._again = [outcome.number for outcome in self.failed if outcome.commit != commit]
        self._taken = set(self._newest)

    @property
    def failed(self) -> list[Outcome]:
        return [outcome for outcome in self._newest.values() if outcome.problem]

    def next(self) -> int | None:
        """Returns the number of the next job; None at the end of the campaign."""
        with self.lock:
            if self.is_over or time.monotonic() >= self._until:
                return None
            if self._again:
                return self._again.pop(0)
            if self.injected >= self.faults:
                return None
            while self._number in self._taken:
                self._number += 1
            self._taken.add(self._number)
            return self._number

    def add(self, outcome: Outcome) -> None:
        self.injected += outcome.faults
        self._newest[outcome.number] = outcome


class Campaign:
    """A campaign in a directory. `campaign.json` holds its seed and the first job that may have each kind of fault and
    each strategy; `outcomes.jsonl` holds the outcome of each job.

    With a `ledger`, these two files are kept there: they are small and can be committed, so that a campaign of many
    hours can be continued wherever the repository is.
    """

    mark = "chaos"  # names the section of a page that quotes the table

    def __init__(self, directory: Path, seed: int, ledger: Path | None = None) -> None:
        self.directory = directory
        ledger = ledger or directory
        for path in (directory, ledger):
            path.mkdir(parents=True, exist_ok=True)
        self._file, self._outcomes = ledger / "campaign.json", ledger / "outcomes.jsonl"
        self.settings: dict[str, Any] = json.loads(self._file.read_text()) if self._file.exists() else {}
        self.seed: int = self.settings.setdefault("seed", seed)
        self._add_new_choices()
        self._children: list[subprocess.Popen[bytes]] = []

    def _available_kinds(self) -> frozenset[Kind]:
        return injection.available_kinds()

    def _add_new_choices(self) -> None:
        """Adds kinds and strategies that are new, from the next job on: the plans of earlier jobs do not change."""
        before = json.dumps(self.settings)
        next_number = max((outcome.number + 1 for outcome in self.outcomes()), default=0)
        for key, names in self._available_choices().items():
            first_jobs: dict[str, int] = self.settings.setdefault(key, {})
            first_jobs.update(dict.fromkeys(sorted(names - first_jobs.keys()), next_number))
        if json.dumps(self.settings) != before:
            self._file.write_text(json.dumps(self.settings, indent=1) + "\n")

    def _available_choices(self) -> dict[str, set[str]]:
        """Returns what plans can choose from here, by its key in `campaign.json`."""
        return {"kinds": {kind.name for kind in self._available_kinds()}}

    def _choices_of_job(self, key: str, number: int) -> list[str]:
        return [name for name, first_job in self.settings[key].items() if number >= first_job]

    def kinds(self, number: int) -> frozenset[Kind]:
        """Returns the kinds of faults that this job may have."""
        return frozenset(Kind[name] for name in self._choices_of_job("kinds", number))

    def outcomes(self) -> list[Outcome]:
        if not self._outcomes.exists():
            return []
        return [Outcome(**json.loads(line)) for line in self._outcomes.read_text().splitlines()]

    def run(self, faults: int, seconds: float, concurrency: int, report: Callable[[str], None]) -> bool:
        """Runs jobs until `faults` were injected in all, or for `seconds`. Returns whether every job passed."""
        self._check_kinds_available()
        kinds = sorted(Kind[name] for name in self.settings["kinds"])
        report(f"campaign of seed {self.seed} in {self.directory}; kinds: {', '.join(kinds)}")
        reference_results(self.directory)
        with self._shared_environment():
            numbers = JobNumbers(self.outcomes(), faults, time.monotonic() + seconds, commit())
            with ThreadPoolExecutor(concurrency) as pool:
                runners = [pool.submit(self._run_jobs, numbers, report) for _ in range(concurrency)]
                try:
                    for runner in runners:
                        runner.result()
                except BaseException:
                    numbers.is_over = True
                    for child in list(self._children):
                        child.terminate()  # it stops its job
                    raise
        return not numbers.failed

    def _run_jobs(self, numbers: JobNumbers, report: Callable[[str], None]) -> None:
        while (number := numbers.next()) is not None:
            outcome = self._run_job(number)
            if numbers.is_over:
                return  # the job was interrupted
            outcome.commit = commit()
            if not outcome.problem:
                self._remove_files(number)
            with numbers.lock, self._outcomes.open("a") as file:
                line = json.dumps(asdict(outcome)).replace(f"{self.directory}/", "").replace(f"{ROOT}/", "")
                file.write(line + "\n")  # without paths of this machine
            numbers.add(outcome)
            ending = f"FAILED: {outcome.problem}" if outcome.problem else outcome.ending
            report(
                f"job {number} ({outcome.strategy}): {outcome.faults} faults in {outcome.seconds:.0f} s, "
                f"{ending.splitlines()[0][:300]}; {numbers.injected} of {numbers.faults} faults, "
                f"{len(numbers.failed)} jobs failed"
            )
            if outcome.problem:
                report(f"  repeat it: {self._command(number)}")

    def repeat(self, number: int) -> Outcome:
        """Runs one job again, with the faults of its plan; it is not counted."""
        self._check_kinds_available()
        reference_results(self.directory)
        with self._shared_environment():
            return self._run_job(number)

    def _check_kinds_available(self) -> None:
        """A continued campaign keeps its kinds: with fewer of them its later jobs would have other plans."""
        if missing := {Kind[name] for name in self.settings["kinds"]} - self._available_kinds():
            raise UnavailableFaultsError(
                f"this campaign has faults that cannot be injected here: {', '.join(sorted(missing))}. They need root, "
                "network namespaces, iptables, a C compiler and cgroups; --directory DIR starts a campaign without them"
            )

    def plan(self, number: int) -> Plan:
        return plan_job(self.seed, number, self.kinds(number))

    def _shared_environment(self) -> AbstractContextManager[None]:
        """Starts what all jobs of a run share; nothing here."""
        return nullcontext()

    def _command(self, number: int) -> str:
        return f"python -m tests.chaos --directory {self.directory} --ledger {self._file.parent} --job {number}"

    def _run_job(self, number: int) -> Outcome:
        argv = [
            sys.executable,
            "-m",
            "tests.chaos",
            "--directory",
            str(self.directory),
            "--ledger",
            str(self._file.parent),
            "--job",
            str(number),
            "--inside",
        ]
        if injection.can_isolate():
            argv = ["unshare", "--net", "--mount", "--propagation", "private", "--", *argv]
        log = self.directory / f"job-{number}.log"
        with (
            log.open("wb") as file,
            subprocess.Popen(argv, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL) as child,
        ):
            self._children.append(child)
            try:
                child.wait(JOB_S)
            except BaseException:
                child.terminate()
                raise
            finally:
                self._children.remove(child)
        outcome_file = self.directory / f"job-{number}" / "outcome.json"
        if not outcome_file.exists():
            return Outcome(
                self.seed, number, "?", problem=f"the process of the job ended with {child.returncode}: {log}"
            )
        return Outcome(**json.loads(outcome_file.read_text()))

    def _remove_files(self, number: int) -> None:
        (self.directory / f"job-{number}.log").unlink()
        shutil.rmtree(self.directory / f"job-{number}")


def commit() -> str:
    """Returns the commit of the code that is tested."""
    argv = ["git", "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
