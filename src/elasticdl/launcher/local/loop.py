"""The launcher's one loop: the master's commands in, ends of processes out.

It decides nothing about the job, except that a dead master is started again.
"""

from __future__ import annotations

import logging
import os
import selectors
import shutil
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from elasticdl import stacks, vital
from elasticdl.clock import Clock
from elasticdl.errors import StateDamaged
from elasticdl.launcher.certificate_manager import PERMANENT_ROLES, CertificateManager
from elasticdl.launcher.interface import (
    Command,
    DetachedReport,
    EndCommand,
    ExitedProcess,
    HeartbeatCommand,
    HeartbeatReport,
    LaunchCommand,
    ReplicasReport,
    Report,
    RunningProcess,
    SignalCommand,
    StartedReport,
    StopReport,
)
from elasticdl.launcher.local.fork_client import ForkServer, reap_strangers
from elasticdl.launcher.local.master_process import MasterProcess, start_master
from elasticdl.launcher.local.oom import OomDetector
from elasticdl.launcher.local.processes import find_replicas
from elasticdl.launcher.local.record import LauncherRecord
from elasticdl.launcher.local.replica_starter import ReplicaCommand, ReplicaStarter
from elasticdl.launcher.local.restart_policy import WRONG_JOB_CODE, GiveUp, RestartPolicy
from elasticdl.launcher.local.watched_process import WatchedProcess
from elasticdl.launcher.loop_monitor import LoopHealth, LoopMonitor
from elasticdl.launcher.replica_environ import inherited_environ
from elasticdl.spec import Phase
from elasticdl.spec.directory import JobDirectory, read_json, write_json

NOT_EXECUTABLE_CODE = 127  # as a shell says it
KILL_AFTER_S = 5.0  # between SIGTERM and SIGKILL once the job is over
LOG_TAIL_BYTES = 2000
WORKER_ROLE = "worker"
MIN_FREE_BYTES = 64 << 10  # a disk with less room than this is full …
MAX_DISK_FULL_S = 300.0  # … and for so long a master that cannot write is not given up, but started when there is room
RETRY_S = 0.5  # before what failed for want of descriptors or room is tried again
_log = logging.getLogger("elasticdl")


class LauncherLoop:
    """Runs until the job is over and every replica has ended; `run` returns the job's exit code."""

    def __init__(
        self,
        directory: JobDirectory,
        record: LauncherRecord,
        *,
        run: int,
        master: str,
        clock: Clock,
        restarts: RestartPolicy,
        issuer: CertificateManager,
    ) -> None:
        self._directory = directory
        self._record = record
        self._run = run
        self._module = master
        self._clock = clock
        self._restarts = restarts
        self._issuer = issuer
        self._selector = selectors.DefaultSelector()
        self._children: dict[str, WatchedProcess] = {}
        self._master: MasterProcess | None = None
        self._environ = inherited_environ(os.environ)
        self._oom = OomDetector()
        self._starter = ReplicaStarter(self._selector, clock, self._oom, self._replica_started, self._cannot_start)
        self.stop_reason = ""  # why the job is to be stopped: every master is told
        self._exit_code: int | None = None  # set once the job is over
        self._deadlines: list[tuple[float, int]] = []  # (monotonic time, signal for whoever still lives)
        self._vigil = LoopMonitor()  # over the master
        self._start_at: float | None = None  # monotonic time at which a master is started
        self._full_since: float | None = None

    def fork_replicas(self, server: ForkServer | None, start_server: Callable[[], ForkServer]) -> None:
        """Fork workers and ps from this server, or from one that is started now; otherwise they are spawned."""
        self._starter.use_server(server, start_server)

    def watch_attached(self, readable: int) -> None:
        """Stop the job when descriptor `readable` is: a command line's pipe or pidfd, or a signal to the launcher."""
        self._selector.register(readable, selectors.EVENT_READ, lambda _: self._detached(readable))

    def adopt_replicas(self) -> None:
        """Watch the replicas of the launcher before this one. How those ended that are gone, nobody can know."""
        for running in list(self._record.replicas.values()):
            if child := WatchedProcess.adopt(running):
                self._watch(child)
            else:
                self._ended(ExitedProcess(running.replica, running.pid, None, None, self._clock.now()))
        # It may have died before it wrote down what it had just started.
        watched = {child.running.pid for child in self._children.values()}
        for running in find_replicas(self._directory, self._run):
            if running.pid not in watched and (child := WatchedProcess.adopt(running)):
                self._adopt_unrecorded(child)

    def _adopt_unrecorded(self, child: WatchedProcess) -> None:
        name, pid = child.running.replica, child.running.pid
        if name in self._children:
            _log.error("%s (pid %d) is there twice: this one, which no launcher wrote down, is killed", name, pid)
            child.signal(signal.SIGKILL)
            child.stop_watching()
            return
        _log.info("%s (pid %d) was not written down by the launcher before", name, pid)
        self._watch(child)

    def adopt_master(self, end: socket.socket) -> None:
        """Go on with the living master; should it have died meanwhile, `run` starts another."""
        if self._record.master and (child := WatchedProcess.adopt(self._record.master)):
            self._connect(child, end)
        else:
            end.close()

    def run(self) -> int:
        self._issuer.try_issue((*PERMANENT_ROLES, *self._children), self._clock.now())
        if self._master is None:
            self._start_master()
        self._save()
        while self._exit_code is None or self._children or self._master:
            for key, events in self._selector.select(self._until_deadline()):
                # An earlier one of this batch may have closed it.
                if self._selector.get_map().get(key.fd) == key:
                    key.data(events)
            self._keep_deadlines()
            self._watch_master()
            self._starter.check()
            reap_strangers(self._watched_pids)
            self._issuer.renew_due(self._clock.now())
        self._starter.close()
        self._issuer.close()
        return self._exit_code

    def _execute(self, command: Command) -> None:
        match command:
            case LaunchCommand():
                self._launch(command)
            case SignalCommand(replica, number):
                if self._starter.is_waiting(replica):
                    self._starter.spawn_waiting()
                if child := self._children.get(replica):
                    child.signal(number)
            case HeartbeatCommand(limit_s):
                self._vigil.record_heartbeat(time.monotonic(), limit_s)
                self._report(HeartbeatReport())
            case EndCommand(exit_code, grace_s):
                self._end(exit_code, grace_s)

    def _launch(self, launch: LaunchCommand) -> None:
        name = launch.replica
        if self._exit_code is not None:
            return
        if name in self._children:
            self._report(_started_report(self._children[name].running))
            return
        if self._starter.is_waiting(name):
            return
        command = ReplicaCommand(
            name,
            launch.argv,
            self._environ | launch.environ,
            self._directory.log_file(name),
            needs_torch=launch.role == WORKER_ROLE,
        )
        try:
            self._issuer.issue(name, self._clock.now())
        except OSError as exc:
            self._cannot_start(command, exc)
        else:
            self._starter.start(command)

    def _cannot_start(self, command: ReplicaCommand, exc: OSError) -> None:
        with suppress(OSError), command.log.open("a") as output:
            output.write(f"cannot start {command.name}: {command.argv[0]}: {exc.strerror}\n")
        self._ended(ExitedProcess(command.name, 0, NOT_EXECUTABLE_CODE, None, self._clock.now()))

    def _replica_started(self, child: WatchedProcess) -> None:
        self._watch(child)
        self._save()
        self._report(_started_report(child.running))

    def _watched_pids(self) -> list[int]:
        watched = [*self._children.values(), *([self._master.child] if self._master else [])]
        return [child.running.pid for child in watched] + self._starter.server_pids

    def _watch(self, child: WatchedProcess) -> None:
        self._oom.watch(child.running.pid)
        self._children[child.running.replica] = child
        self._record.replicas[child.running.replica] = child.running
        self._selector.register(child, selectors.EVENT_READ, lambda _: self._reap(child))

    def _reap(self, child: WatchedProcess) -> None:
        self._selector.unregister(child)
        del self._children[child.running.replica]
        out_of_memory = self._oom.was_killed(child.running.pid)
        self._ended(self._with_reason(child.reap(self._clock.now(), out_of_memory=out_of_memory)))

    def _with_reason(self, exited: ExitedProcess) -> ExitedProcess:
        """A replica that failed may have left behind why."""
        if exited.code in (None, 0):
            return exited
        return replace(exited, reason=vital.read_exit_reason(self._directory.exit_reason_file(exited.replica)))

    def _ended(self, exited: ExitedProcess) -> None:
        self._record.replicas.pop(exited.replica, None)
        self._issuer.stop_renewing(exited.replica)
        self._record.exited.append(exited)
        # Told before it is kept: survivors wait for this news, and a launcher that dies in between
        # leaves a record from which its successor finds out.
        self._report(exited)
        self._save()
        _log.info("%s (pid %d) %s", exited.replica, exited.pid, exited.why)

    def _detached(self, readable: int) -> None:
        self._selector.unregister(readable)
        _log.info("detached: the command line is gone, or the launcher was told to end")
        self._record.is_detached = True
        self._save()
        self._report(DetachedReport())

    def _start_master(self) -> None:
        self._start_at = None
        try:
            started = start_master(self._directory, self._run, self._module, self._environ, self._clock.now())
        except OSError as exc:
            _log.error("no master can be started now: %s", exc)
            self._start_at = time.monotonic() + RETRY_S
        else:
            self._connect(*started)
            self._save()

    def _waits_for_room(self) -> bool:
        """Whether the disk is full, and has not been for too long."""
        if shutil.disk_usage(self._directory.root).free >= MIN_FREE_BYTES:
            self._full_since = None
            return False
        now = time.monotonic()
        if self._full_since is None:
            _log.warning("no space is left for %s: the master is started once there is some", self._directory.root)
            self._full_since = now
        return now - self._full_since < MAX_DISK_FULL_S

    def _connect(self, child: WatchedProcess, end: socket.socket) -> None:
        self._starter.spawn_waiting()  # a new master is told of all that its predecessor has launched
        link = MasterProcess(child, end, self._selector, self._execute, self._master_ended)
        self._master, self._record.master = link, child.running
        self._vigil = LoopMonitor()
        link.watch()
        running = tuple(_started_report(process) for process in self._record.replicas.values())
        link.send(ReplicasReport(running, tuple(self._record.exited)))
        if self._record.is_detached:
            link.send(DetachedReport())
        if self.stop_reason:
            link.send(StopReport(self.stop_reason))

    def _master_ended(self) -> None:
        assert self._master is not None
        death = self._with_reason(self._master.child.reap(self._clock.now()))
        self._master, self._record.master = None, None
        if self._exit_code is None:
            _log.warning("master (pid %d) %s before the job was over", death.pid, death.why)
            served = self._has_served(death.pid)
            if death.code != WRONG_JOB_CODE and self._waits_for_room():
                self._start_at = time.monotonic() + RETRY_S
            elif isinstance(decision := self._restarts.decide(death, served=served), GiveUp):
                self._give_up(decision)
            elif decision.delay_s:
                self._start_at = time.monotonic() + decision.delay_s
            else:
                self._start_master()
        self._save()

    def _has_served(self, pid: int) -> bool:
        try:
            return bool((read_json(self._directory.master) or {}).get("pid") == pid)
        except (OSError, StateDamaged):
            return True  # nobody can know: the benefit of the doubt

    def _give_up(self, decision: GiveUp) -> None:
        log = self._directory.log_file("master")
        _log.error("%s; see %s", decision.reason, log)
        if not self._directory.result.exists():
            result = {"phase": Phase.FAILED, "reason": self._explain(decision, log), "exit_code": decision.exit_code}
            self._directory.reserve.unlink(missing_ok=True)
            try:
                write_json(self._directory.result, result)
            except OSError as exc:
                _log.error("%s cannot be written: %s", self._directory.result, exc.strerror)
        # Workers that hold a state write it first: by the result and the signal they know that no master will come.
        spec = self._directory.load_spec()
        self._end(decision.exit_code, spec.timing.grace_period_s + spec.checkpoint.retry_s)

    def _explain(self, decision: GiveUp, log: Path) -> str:
        root = self._directory.root
        if decision.exit_code != WRONG_JOB_CODE and shutil.disk_usage(root).free < MIN_FREE_BYTES:
            return f"no space is left for {root}: free some, then go on with --resume ({decision.reason})"
        try:
            tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        except OSError as exc:
            tail = f"(it cannot be read: {exc})"
        advice = "" if decision.exit_code == WRONG_JOB_CODE else "; workers keep what they hold: go on with --resume"
        return f"{decision.reason}{advice}. {log} ends with:\n{tail}"

    def _end(self, exit_code: int, grace_s: float | None) -> None:
        if self._exit_code is not None:
            return
        if grace_s is None:
            grace_s = self._directory.load_spec().timing.grace_period_s
        self._exit_code = exit_code
        self._starter.cancel_waiting()
        now = time.monotonic()
        # A finished job has told its workers to go; those of any other may not know yet.
        self._deadlines = [
            (now + (grace_s if exit_code == 0 else 0.0), signal.SIGTERM),
            (now + grace_s + KILL_AFTER_S, signal.SIGKILL),
        ]

    def _watch_master(self) -> None:
        """Kill a master whose loop stands still: another one goes on with its journal."""
        if self._master is None or self._exit_code is not None:
            return
        child = self._master.child
        match self._vigil.check(time.monotonic()):
            case LoopHealth.SILENT:
                _log.warning("the master (pid %d) does not turn: its stacks are asked for", child.running.pid)
                child.signal(stacks.DUMP_SIGNAL)
            case LoopHealth.STALLED if not stacks.has_debugger(child.running.pid):
                _log.error("the master (pid %d) stands still: it is killed and replaced", child.running.pid)
                child.signal(signal.SIGKILL)

    def _until_deadline(self) -> float | None:
        instants = [instant for instant, _ in self._deadlines[:1]] + (
            [self._start_at] if self._start_at is not None else []
        )
        waits = [max(0.0, instant - time.monotonic()) for instant in instants]
        intervals = (self._issuer.check_interval_s, self._vigil.check_interval_s, self._starter.check_interval_s)
        checks = [wait_s for wait_s in intervals if wait_s]
        return min([*waits, *checks], default=None)

    def _keep_deadlines(self) -> None:
        if self._exit_code is None and self._start_at is not None and self._start_at <= time.monotonic():
            if self._waits_for_room():
                self._start_at = time.monotonic() + RETRY_S
            else:
                self._start_master()
        while self._deadlines and self._deadlines[0][0] <= time.monotonic():
            _, number = self._deadlines.pop(0)
            # The master ends by itself; only one that hangs to the very end is killed.
            is_last = number == signal.SIGKILL
            for child in [*self._children.values(), *([self._master.child] if self._master and is_last else [])]:
                _log.info("the job is over: signal %d to %s", number, child.running.replica)
                child.signal(number)

    def _report(self, report: Report) -> None:
        if self._master is not None:
            self._master.send(report)

    def _save(self) -> None:
        try:
            self._record.save(self._directory.launcher)
        except OSError as exc:
            # Only a launcher after this one needs it; without this one nobody would end what runs.
            _log.error("%s cannot be written: %s", self._directory.launcher, exc.strerror)


def _started_report(process: RunningProcess) -> StartedReport:
    return StartedReport(process.replica, process.pid, process.started_at)
