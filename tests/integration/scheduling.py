"""A real scheduler beside real jobs, with the policies of ElasticDL and one that can be made to fail.

As a script it is `elasticdl` that knows the policy `in-order`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from elasticdl.cli.main import main
from elasticdl.scheduler import policies
from elasticdl.scheduler.accounts.report import ScheduledJobStatus
from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.local.queue import SubmissionQueue
from elasticdl.scheduler.snapshot import Snapshot
from elasticdl.spec.env import HOME
from tests.integration.job import PATIENCE_S
from tests.unit.scheduler.local.jobs import InOrder
from tests.waiting import until


@dataclass(frozen=True)
class Fallible(InOrder):
    """Fails while the file `fails` is there."""

    fails: str = "/nowhere"

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        if Path(self.fails).exists():
            raise ZeroDivisionError("made to fail")
        return super().decide(snapshot, memory)


class Scheduler:
    """The scheduler of one home, as a process that may be killed and started again."""

    def __init__(self, home: Path) -> None:
        self.queue = SubmissionQueue(home)
        self.log = home / "scheduler-output"
        self._environ = {**os.environ, HOME: str(home), "PYTHONUNBUFFERED": "1"}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, budget: int, policy: str = "in-order", *options: str) -> None:
        argv = [sys.executable, "-m", "tests.integration.scheduling", "scheduler"]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*argv, f"--budget={budget}", f"--policy={policy}", *options],
                env=self._environ,
                stdout=output,
                stderr=output,
            )
        self._wait(lambda: self.queue.is_served(), "a scheduler")

    def end(self, number: int = signal.SIGKILL) -> int:
        """End it by a signal; its exit code."""
        if self._process is None:
            return 0
        self._process.send_signal(number)
        code = self._process.wait(PATIENCE_S)
        self._process = None
        return code

    def standing(self, name: str) -> ScheduledJobStatus | None:
        report = self.queue.load_report()
        return report.jobs.get(name) if report else None

    def wait(self, name: str, is_so: Callable[[ScheduledJobStatus], bool], description: str) -> ScheduledJobStatus:
        """Waits until the scheduler reports this of a job."""
        status_now = self._wait(
            lambda: (job_status := self.standing(name)) is not None and is_so(job_status) and job_status,
            f"{name} {description}",
        )
        assert isinstance(status_now, ScheduledJobStatus)
        return status_now

    def wait_gone(self, name: str) -> None:
        self._wait(lambda: not self.queue.has_job(name), f"{name} has left the queue")

    def wait_empty(self) -> None:
        self._wait(lambda: not self.queue.job_names(), "an empty queue")

    def _wait(self, condition: Callable[[], Any], description: str) -> Any:
        return until(description, condition, PATIENCE_S, tell=self.log.read_text)


if __name__ == "__main__":
    module = ModuleType("in_order")
    module.POLICY = Fallible  # type: ignore[attr-defined]
    sys.modules["elasticdl.scheduler.policies.in_order"] = module
    policies.POLICY_REGISTRY["in-order"] = ("in_order", {})
    main()
