"""Random histories of a machine with a scheduler: jobs come, end and die; events are late; the scheduler dies, too.

Workers never have more devices than exist, a job has at most one action at a time, and once
nothing more happens every job has its allocation.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from elasticdl.scheduler.accounts import events as ev
from elasticdl.scheduler.accounts.report import ScheduledJobState, SchedulerReport
from elasticdl.scheduler.accounts.submission import JobSubmission
from elasticdl.scheduler.local.scheduler import LocalScheduler
from tests.properties import examples
from tests.unit.scheduler.local.jobs import InOrder, submission, turns

DEVICES = 5


@dataclass
class Process:
    """A job that really runs: what its master requests, and its live workers."""

    desired: int
    living: int
    is_stopping: bool = False


class MachineUnderScheduler(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.turns: LocalScheduler = turns(DEVICES, InOrder())
        self.numbers = itertools.count()
        self.queue: dict[str, JobSubmission] = {}
        self.world: dict[str, Process] = {}
        self.unwanted: set[str] = set()
        self.doing: list[ev.JobAction] = []  # started, not yet carried out
        self.late: list[ev.JobStatusReported] = []  # sent, not yet received
        self.report: SchedulerReport = self.turns.report(self.now)

    # ---- the scheduler

    def step(self, *events: ev.JobEvent) -> None:
        self.now += 0.25
        actions = self.turns.step(events, self.now)
        busy = [action.name for action in self.doing]
        assert not {action.name for action in actions} & set(busy), "one thing at a time"
        self.doing += actions
        self.report = self.turns.report(self.now)
        for name in [name for name in self.queue if name not in self.turns.job_table.entries]:
            assert name not in self.world, "forgot a job that runs"
            del self.queue[name]

    @rule(min_workers=st.integers(1, 3), more=st.integers(0, 4), priority=st.integers(0, 2), devices=st.integers(1, 2))
    def submit(self, min_workers: int, more: int, priority: int, devices: int) -> None:
        name = f"job-{next(self.numbers)}"
        job_entry = submission(
            name, min_workers, min_workers + more, submitted_at=self.now, priority=priority, devices=devices
        )
        self.queue[name] = job_entry
        self.step(ev.JobSubmitted(job_entry))

    @precondition(lambda self: self.doing)
    @rule(data=st.data(), fails=st.booleans())
    def carry_out(self, data: st.DataObject, fails: bool) -> None:
        action = data.draw(st.sampled_from(self.doing))
        self.doing.remove(action)
        self.step(*self._carried_out(action, fails))

    def _carried_out(self, action: ev.JobAction, fails: bool) -> list[ev.JobEvent]:
        name, process = action.name, self.world.get(action.name)
        match action:
            case ev.StartJob(_, workers):
                assert process is None, "started twice"
                if fails:
                    return [ev.JobLost(name, "cannot be started"), ev.ActionFailed(name, self.now)]
                self.world[name] = Process(workers, workers)
            case ev.CloseJob(_, phase):
                assert process is None, "closed though it runs"
                return [ev.JobExited(name, phase), ev.ActionSucceeded(name, self.now)]
            case _ if fails or process is None or process.is_stopping:
                return [ev.ActionFailed(name, self.now)]
            case ev.ResizeJob(_, workers):
                process.desired, process.living = workers, max(workers, process.living)
            case ev.SuspendJob() | ev.StopJob():
                process.is_stopping = True
        return [ev.ActionSucceeded(name, self.now)]

    @rule()
    def time_passes(self) -> None:
        self.now += 1.0
        self.step()

    @rule(data=st.data())
    def the_scheduler_dies_and_another_comes(self, data: st.DataObject) -> None:
        for action in self.doing:
            if data.draw(st.booleans(), label=f"{action} was carried out"):
                self._carried_out(action, fails=False)
        self.doing, self.late = [], []
        self.turns = turns(DEVICES, InOrder())
        recovered: list[ev.JobEvent] = []
        for name, job_entry in self.queue.items():
            standing = self.report.jobs.get(name)
            if standing is None:
                recovered.append(ev.JobSubmitted(job_entry))
            else:
                recovered.append(ev.JobRecovered(job_entry, standing.state, standing.allocated, standing.account))
        self.step(*recovered, *(ev.JobStopRequested(name) for name in sorted(self.unwanted & set(self.queue))))

    # ---- jobs

    @precondition(lambda self: self.world)
    @rule(data=st.data())
    def a_master_tells(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world)))
        self.late.append(self._report_status(name))

    def _report_status(self, name: str) -> ev.JobStatusReported:
        process = self.world[name]
        self.now += 0.01
        phase = "stopping" if process.is_stopping else "running"
        return ev.JobStatusReported(
            name, self.now, phase, process.desired, process.living, ev.JobProgress(step=int(self.now))
        )

    @precondition(lambda self: self.late)
    @rule()
    def the_oldest_news_is_heard(self) -> None:
        self.step(self.late.pop(0))

    @precondition(lambda self: self.world)
    @rule(data=st.data())
    def workers_leave(self, data: st.DataObject) -> None:
        process = self.world[data.draw(st.sampled_from(sorted(self.world)))]
        process.living = max(process.desired, process.living - 1)

    @precondition(lambda self: self.world)
    @rule(data=st.data(), phase=st.sampled_from(["succeeded", "failed", "stopped"]))
    def a_job_ends(self, data: st.DataObject, phase: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.world)))
        if not self.world[name].is_stopping and phase == "stopped":
            phase = "succeeded"
        self._end(name, phase)

    def _end(self, name: str, phase: str) -> None:
        del self.world[name]
        self.late = [job_entry for job_entry in self.late if job_entry.name != name]
        self.step(ev.JobExited(name, phase))

    @precondition(lambda self: self.world)
    @rule(data=st.data())
    def a_jobs_processes_die(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world)))
        del self.world[name]
        self.late = [job_entry for job_entry in self.late if job_entry.name != name]
        self.step(ev.JobLost(name))

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def an_owner_wants_a_job_ended(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.queue)))
        self.unwanted.add(name)
        self.step(ev.JobStopRequested(name))

    # ---- what holds

    @invariant()
    def nobody_has_more_than_there_is(self) -> None:
        used = sum(
            max(job_entry.living, job_entry.desired) * self.queue[name].devices
            for name, job_entry in self.world.items()
        )
        assert used <= DEVICES

    @invariant()
    def whoever_runs_is_known(self) -> None:
        assert set(self.world) <= set(self.turns.job_table.entries)
        assert not any(self.turns.job_table.entries[name].state is ScheduledJobState.WAITING for name in self.world)

    @invariant()
    def reports_survive_being_written(self) -> None:
        assert all(job_entry.reason for job_entry in self.report.jobs.values())

    def teardown(self) -> None:
        """After all due actions every job has its allocation."""
        for _ in range(40):
            while self.doing:
                self.step(*self._carried_out(self.doing.pop(0), fails=False))
            for name in sorted(self.world):
                process = self.world[name]
                if process.is_stopping:
                    self._end(name, "stopped")
                else:
                    process.living = process.desired
                    self.step(self._report_status(name))
            for name, entry in list(self.turns.job_table.entries.items()):
                if entry.state is not ScheduledJobState.WAITING and name not in self.world and not entry.is_busy:
                    self.step(ev.JobLost(name))  # the report of a watcher about a start that never happened
            self.now += 1.0
            self.step()
        entries = self.turns.job_table.entries
        assert {name: job_entry.desired for name, job_entry in self.world.items()} == {
            name: entry.worker_count for name, entry in entries.items() if entry.allocated
        }
        assert not any(entry.is_stop_requested for entry in entries.values())


TestMachineUnderScheduler = MachineUnderScheduler.TestCase
TestMachineUnderScheduler.settings = settings(max_examples=examples(60), stateful_step_count=40)
