"""A campaign: jobs one after another, each in a process of its own, until so many faults have struck. It is resumed."""

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

from tests.chaos import striking
from tests.chaos.job import Outcome, reference
from tests.chaos.schedule import Kind, Plan, plan

ROOT = Path(__file__).parents[2]
JOB_S = 600.0  # more than a job can take, all its own limits included


class CannotStrikeError(Exception):
    """A kind of fault that this machine cannot make."""


class Turn:
    """What those who run jobs at the same time share: how far they are, and who takes which job.

    A job that failed is struck again once the code is another.
    """

    def __init__(self, done: list[Outcome], faults: int, until: float, commit: str = "") -> None:
        self.lock = threading.Lock()
        self.faults = faults
        self.struck = 0
        self.is_over = False
        self._until = until
        self._newest: dict[int, Outcome] = {}  # of each job
        self._number = 0
        for one in done:
            self.add(one)
        self._again = [one.number for one in self.failed if one.commit != commit]
        self._taken = set(self._newest)

    @property
    def failed(self) -> list[Outcome]:
        return [outcome for outcome in self._newest.values() if outcome.problem]

    def next(self) -> int | None:
        """The least number that nobody took, if there is to be another job."""
        with self.lock:
            if self.is_over or time.monotonic() >= self._until:
                return None
            if self._again:
                return self._again.pop(0)
            if self.struck >= self.faults:
                return None
            while self._number in self._taken:
                self._number += 1
            self._taken.add(self._number)
            return self._number

    def add(self, outcome: Outcome) -> None:
        self.struck += outcome.faults
        self._newest[outcome.number] = outcome


class Campaign:
    """Of a directory: `campaign.json` says what it is, and since which job it has each kind of fault and each strategy
    that it did not begin with; `outcomes.jsonl` what came of each job.

    These two lie in the `ledger`, where there is one: it is small and can be committed, so that a campaign of many
    hours goes on wherever the repository is.
    """

    mark = "chaos"  # of the place in a page that quotes it

    def __init__(self, directory: Path, seed: int, ledger: Path | None = None) -> None:
        self.directory = directory
        ledger = ledger or directory
        for place in (directory, ledger):
            place.mkdir(parents=True, exist_ok=True)
        self._file, self._outcomes = ledger / "campaign.json", ledger / "outcomes.jsonl"
        self.about: dict[str, Any] = json.loads(self._file.read_text()) if self._file.exists() else {}
        self.seed: int = self.about.setdefault("seed", seed)
        self._learn()
        self._children: list[subprocess.Popen[bytes]] = []

    def _available(self) -> frozenset[Kind]:
        return striking.available()

    def _learn(self) -> None:
        """What was not there when the campaign began is there from its next job on; what was, stays as it is."""
        before = json.dumps(self.about)
        beginning = max((outcome.number + 1 for outcome in self.outcomes()), default=0)
        for what, names in self._choices().items():
            known: dict[str, int] = self.about.setdefault(what, {})
            known.update(dict.fromkeys(sorted(names - known.keys()), beginning))
        if json.dumps(self.about) != before:
            self._file.write_text(json.dumps(self.about, indent=1) + "\n")

    def _choices(self) -> dict[str, set[str]]:
        """What there is to choose from, by its key in `campaign.json`."""
        return {"kinds": {kind.name for kind in self._available()}}

    def _names(self, what: str, number: int) -> list[str]:
        """Of these, what this job may have."""
        return [name for name, beginning in self.about[what].items() if number >= beginning]

    def kinds(self, number: int) -> frozenset[Kind]:
        """Those that may strike this job."""
        return frozenset(Kind[name] for name in self._names("kinds", number))

    def outcomes(self) -> list[Outcome]:
        if not self._outcomes.exists():
            return []
        return [Outcome(**json.loads(line)) for line in self._outcomes.read_text().splitlines()]

    def run(self, faults: int, seconds: float, at_once: int, tell: Callable[[str], None]) -> bool:
        """Until so many faults struck in all, or the time is over; whether every job was as it should be."""
        self._require()
        kinds = sorted(Kind[name] for name in self.about["kinds"])
        tell(f"campaign of seed {self.seed} in {self.directory}; kinds: {', '.join(kinds)}")
        reference(self.directory)
        with self._world():
            turn = Turn(self.outcomes(), faults, time.monotonic() + seconds, commit())
            with ThreadPoolExecutor(at_once) as pool:
                ends = [pool.submit(self._jobs, turn, tell) for _ in range(at_once)]
                try:
                    for end in ends:
                        end.result()
                except BaseException:
                    turn.is_over = True
                    for child in list(self._children):
                        child.terminate()  # it ends its job
                    raise
        return not turn.failed

    def _jobs(self, turn: Turn, tell: Callable[[str], None]) -> None:
        """One after another, beside others who do the same."""
        while (number := turn.next()) is not None:
            outcome = self._job(number)
            if turn.is_over:
                return  # it was broken off
            outcome.commit = commit()
            if not outcome.problem:
                self._forget(number)
            with turn.lock, self._outcomes.open("a") as file:
                line = json.dumps(asdict(outcome)).replace(f"{self.directory}/", "").replace(f"{ROOT}/", "")
                file.write(line + "\n")  # for any machine
            turn.add(outcome)
            how = f"FAILED: {outcome.problem}" if outcome.problem else outcome.ending
            tell(
                f"job {number} ({outcome.strategy}): {outcome.faults} faults in {outcome.seconds:.0f} s, "
                f"{how.splitlines()[0][:300]}; {turn.struck} of {turn.faults} faults, {len(turn.failed)} jobs failed"
            )
            if outcome.problem:
                tell(f"  repeat it: {self._command(number)}")

    def repeat(self, number: int) -> Outcome:
        """One job with the faults it has in this campaign; it is not counted."""
        self._require()
        reference(self.directory)
        with self._world():
            return self._job(number)

    def _require(self) -> None:
        """A campaign that goes on keeps its kinds: with fewer of them its later jobs would be others."""
        if missing := {Kind[name] for name in self.about["kinds"]} - self._available():
            raise CannotStrikeError(
                f"this campaign has faults that cannot be made here: {', '.join(sorted(missing))}. They need root, "
                "network namespaces, iptables, a C compiler and cgroups; a campaign of the others begins with "
                "--directory DIR"
            )

    def plan(self, number: int) -> Plan:
        return plan(self.seed, number, self.kinds(number))

    def _world(self) -> AbstractContextManager[None]:
        """What all jobs of a run share: nothing, here."""
        return nullcontext()

    def _command(self, number: int) -> str:
        return f"python -m tests.chaos --directory {self.directory} --ledger {self._file.parent} --job {number}"

    def _job(self, number: int) -> Outcome:
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
        if striking.can_isolate():
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
        file_of_outcome = self.directory / f"job-{number}" / "outcome.json"
        if not file_of_outcome.exists():
            return Outcome(
                self.seed, number, "?", problem=f"the process of the job ended with {child.returncode}: {log}"
            )
        return Outcome(**json.loads(file_of_outcome.read_text()))

    def _forget(self, number: int) -> None:
        (self.directory / f"job-{number}.log").unlink()
        shutil.rmtree(self.directory / f"job-{number}")


def commit() -> str:
    """The code that is tried now."""
    argv = ["git", "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
