"""Simulated ps for tests of the master: what each holds, its tasks, and what it has not reported yet."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

from elasticdl.master.machine import events as ev
from elasticdl.master.machine.actions import Action, LaunchReplica, SendMessage, SignalReplica, WriteLogEntry
from elasticdl.master.ps_fleet import ps_events
from elasticdl.master.ps_fleet.fleet import PsFleet, PsReplica, PsReplicaState
from elasticdl.ps.fleet import FleetView
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import PsId
from tests.unit.master.driver import Driver

NOTHING = (0, 0, 0, 0, 0, 0, 0, 0.0, (), 0)


@dataclass
class Process:
    version: int = 0
    owned_slots: set[int] = field(default_factory=set)
    copies: dict[PsId, set[int]] = field(default_factory=dict)
    backup: PsId | None = None
    backup_failure: str = ""  # repeated in every heartbeat until there is a new backup
    is_backed_up: bool = False  # according to the newest fleet message
    tasks: list[pb.FleetTask] = field(default_factory=list)
    newest_version: int = 0  # of the newest task
    unreported_tasks: list[tuple[int, str]] = field(default_factory=list)  # version, failure
    is_connected: bool = False
    is_released: bool = False
    is_leaving: bool = False


class World:
    """Messages reach a connected ps at once. An exit is reported at once, or later by `report`."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.processes: dict[PsId, Process] = {}
        self.unreported: list[PsId] = []
        self.logged_kinds: list[str] = []
        self.reasons: list[str] = []
        self.fleet_view: FleetView | None = None
        self.apply([LaunchReplica("ps", ps.id) for ps in self.fleet.ps.values()])

    @property
    def fleet(self) -> PsFleet:
        return self.driver.machine.state.ledger.fleet

    def ps(self, name: str) -> PsReplica:
        return self.fleet.ps[PsId(name)]

    def apply(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            match action:
                case LaunchReplica("ps", ps):
                    self.processes.setdefault(PsId(ps), Process())
                case SignalReplica(ps, signal.SIGKILL) if PsId(ps) in self.fleet.ps:
                    self.kill(PsId(ps), report=False)
                case SendMessage(name, message) if PsId(name) in self.processes:
                    if self.processes[PsId(name)].is_connected:
                        self._receive(PsId(name), message)
                case WriteLogEntry(_, entry):
                    self.logged_kinds.append(entry.kind)
                    self.reasons.append(entry.reason)
        return actions

    def _receive(self, name: PsId, message: pb.MasterMessage) -> None:
        process = self.processes[name]
        match message.WhichOneof("message"):
            case "fleet":
                view = self.fleet_view = FleetView.from_proto(message.fleet)
                if view.version > process.version:
                    if process.version == 0 and view.version == 1:
                        process.owned_slots = set(view.slot_map.slots_of(name))  # no rows yet, so nothing to move
                    process.version = view.version
                was_backed_up, process.is_backed_up = process.is_backed_up, name in view.backups
                if was_backed_up and not process.is_backed_up:  # not by an older message than its newest task
                    process.backup = None
            case "task":
                if message.task.fleet.version > process.newest_version:
                    process.newest_version = message.task.fleet.version
                    process.tasks.append(message.task)
            case "release":
                process.is_released = True

    # ---- messages of ps

    def connect(self, name: str) -> list[Action]:
        ps = PsId(name)
        process = self.processes[ps]
        process.is_connected = True
        event = ps_events.PsConnected(ps, 100, "host", f"{ps}:1", process.version, process.is_leaving)
        return self.apply(self.driver.do(event))

    def serve(self, count: int) -> None:
        for number in range(count):
            self.connect(f"ps-{number}")

    def beat(self, name: str, backup_failure: str = "") -> list[Action]:
        process = self.processes[PsId(name)]
        process.backup_failure = backup_failure or process.backup_failure
        beat = ps_events.PsHeartbeatReceived(PsId(name), process.version, *NOTHING, process.backup_failure)
        return self.apply(self.driver.do(beat))

    def beat_all(self) -> None:
        for name in [name for name, process in self.processes.items() if process.is_connected]:
            if name in self.processes:
                self.beat(name)

    def perform(self, name: str, failure: str = "") -> None:
        """Do the task, without reporting it yet."""
        ps = PsId(name)
        process = self.processes[ps]
        task = process.tasks.pop(0)
        view = FleetView.from_proto(task.fleet)
        target = PsId(task.target)
        if not failure and task.target and target not in self.processes:
            failure = f"{target} does not answer"
        if not failure:
            self._do(ps, process, task, view)
            process.version = max(process.version, view.version)
        elif task.target and not task.backup:
            process.version = max(process.version, view.version)  # in force here even if the target failed
        process.unreported_tasks.append((view.version, failure))

    def _do(self, ps: PsId, process: Process, task: pb.FleetTask, view: FleetView) -> None:
        slots, target = set(task.slots), PsId(task.target)
        if task.backup:
            self.processes[target].copies[ps] = set(process.owned_slots)
            process.backup, process.backup_failure = target, ""
        elif task.target:
            assert slots <= process.owned_slots, "it was told to move slots that it does not own"
            receiver = self.processes[target]
            receiver.owned_slots |= slots
            receiver.version = max(receiver.version, view.version)
            process.owned_slots -= slots
            if receiver.backup in self.processes:
                self.processes[receiver.backup].copies[target] |= slots
        elif task.promote:
            lost = PsId(task.promote)
            copies = process.copies.pop(lost, set())
            assert set(self.fleet.slots_of(lost)) <= copies, "an incomplete backup was promoted"
            process.owned_slots |= copies
        else:
            process.owned_slots |= slots

    def report_task(self, name: str, rows: int = 0, rolled_back: int = 0) -> list[Action]:
        ps = PsId(name)
        version, failure = self.processes[ps].unreported_tasks.pop(0)
        event = ps_events.TaskReported(ps, self.driver.sequence(name), version, rows, 0.0, rolled_back, failure)
        return self.apply(self.driver.do(event))

    def work(self, name: str, rows: int = 0, rolled_back: int = 0) -> list[Action]:
        """Do the task and report it."""
        self.perform(name)
        return self.report_task(name, rows, rolled_back)

    def kill(self, name: str, *, report: bool = True) -> list[Action]:
        if self.processes.pop(PsId(name), None) is None:
            return []
        self.unreported.append(PsId(name))
        return self.report() if report else []

    def report(self) -> list[Action]:
        """The launcher reports killed ps."""
        actions: list[Action] = []
        while self.unreported:
            actions += self.apply(self.driver.exit(self.unreported.pop(), None, signal.SIGKILL))
        return actions

    def crash(self, name: str) -> list[Action]:
        del self.processes[PsId(name)]
        return self.apply(self.driver.exit(name, 1, None))

    def leave(self, name: str) -> list[Action]:
        self.processes[PsId(name)].is_leaving = True
        event = ps_events.PsLeaving(PsId(name), self.driver.sequence(name), "preempted: SIGTERM")
        return self.apply(self.driver.do(event))

    def exit_released(self, name: str) -> list[Action]:
        """A released ps ends."""
        assert self.processes.pop(PsId(name)).is_released
        self.apply(self.driver.do(ps_events.PsSaidGoodbye(PsId(name), self.driver.sequence(name), "released")))
        return self.apply(self.driver.exit(name, 0, None))

    def scale(self, ps: int) -> list[Action]:
        return self.apply(self.driver.do(ev.ScaleRequested(0, ps)))

    def restart_master(self) -> None:
        self.driver.machine = self.driver.replayed()
        alive = tuple((name, 100) for name in self.processes)
        dead = tuple(ev.ReplicaExit(name, 100, None, signal.SIGKILL) for name in self.unreported)
        self.unreported.clear()
        self.apply(self.driver.do(ev.MasterStarted(2)))
        self.apply(self.driver.do(ev.ReplicasListed(alive, dead)))
        for name in [name for name, process in self.processes.items() if process.is_connected]:
            if name in self.processes:
                self.connect(name)

    def settle(self) -> None:
        """Let all ps do their tasks until nothing changes any more."""
        for _ in range(400):
            self.report()
            before = (self.fleet.version, len(self.processes), self.fleet.task, len(self.logged_kinds))
            for name, process in list(self.processes.items()):
                if name not in self.processes:
                    continue
                if not process.is_connected:
                    self.connect(name)
                if process.tasks:
                    self.perform(name)
                if process.unreported_tasks:
                    self.report_task(name)
                if process.is_released:
                    self.exit_released(name)
            self.apply(self.driver.wait(0.6))
            self.beat_all()
            is_quiet = before == (self.fleet.version, len(self.processes), self.fleet.task, len(self.logged_kinds))
            if is_quiet and self.driver.now > self.driver.machine.state.ledger.failure_budget.relaunch_at + 2:
                if self.driver.now > self.fleet.retry_at + 2:
                    return
                self.driver.now = max(self.driver.now, self.fleet.retry_at)
        raise AssertionError(f"does not settle: {self.fleet}")

    # ---- invariants

    def check(self) -> None:
        """The owner of each slot has its rows, unless a task is moving them."""
        fleet = self.fleet
        moving = set(fleet.task.slots) if fleet.task else set()
        if not fleet.version or fleet.unrestored:
            return
        for name, process in self.processes.items():
            if fleet.ps[name].is_serving:
                missing = set(fleet.slots_of(name)) - process.owned_slots - moving
                assert not missing, f"{name} has no rows of {len(missing)} of its slots"
        for owner, backup in fleet.backups.items():
            if (
                owner in self.processes
                and backup in self.processes
                and fleet.ps[owner].state is not PsReplicaState.LOST
            ):
                missing = set(fleet.slots_of(owner)) - self.processes[backup].copies.get(owner, set()) - moving
                assert not missing, f"the backup of {owner} is incomplete"
