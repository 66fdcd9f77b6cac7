"""The launcher's loop: receives commands of the master and reports when processes start and exit.

It decides nothing about the job, except that a dead master is restarted.
"""

from __future__ import annotations

import logging
import selectors
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping
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
from elasticdl.launcher.local.fork_client import ForkServer, reap_orphans
from elasticdl.launcher.local.master_process import MasterProcess, start_master
from elasticdl.launcher.local.oom import OomDetector
from elasticdl.launcher.local.processes import find_replicas
from elasticdl.launcher.local.record import LauncherRecord
from elasticdl.launcher.local.replica_starter import ReplicaCommand, ReplicaStarter
from elasticdl.launcher.local.restart_policy import WRONG_JOB_CODE, GiveUp, RestartPolicy
from elasticdl.launcher.local.watched_process import WatchedProcess
from elasticdl.launcher.loop_monitor import LoopHealth, LoopMonitor
from elasticdl.spec import Phase
from elasticdl.spec.directory import JobDirectory, read_json, write_json

NOT_EXECUTABLE_CODE = 127  # as in a shell
KILL_AFTER_S = 5.0  # between SIGTERM and SIGKILL once the job is over
LOG_TAIL_BYTES = 2000
WORKER_ROLE = "worker"
MIN_FREE_BYTES = 64 << 10  # a disk with less free space counts as full
MAX_DISK_FULL_S = 300.0  # how long the restart of a master waits for free space before a failure counts
RETRY_S = 0.5  # the pause after a failure for lack of descriptors or disk space
_log = logging.getLogger("elasticdl")


class LauncherLoop:
    """Runs until the job is over and every replica has ended; `run` returns the job's exit code."""

    def __init__(
        self,
        directory: JobDirectory,
        record: LauncherRecord,
        *,
        run: int,
        master_module: str,
        environ: Mapping[str, str],
        clock: Clock,
        selector: selectors.BaseSelector,
        oom: OomDetector,
        restart_policy: RestartPolicy,
        certificates: CertificateManager,
        stop_reason: str,
    ) -> None:
        self._directory = directory
        self._record = record
        self._run = run
        self._master_module = master_module
        self._clock = clock
        self._restart_policy = restart_policy
        self._certificates = certificates
        self._selector = selector
        self._children: dict[str, WatchedProcess] = {}
        self._master: MasterProcess | None = None
        self._environ = dict(environ)  # of the master and of replicas
        self._oom = oom
        self._starter = ReplicaStarter(selector, clock, oom, self._add_replica, self._record_failed_start)
        self._stop_reason = stop_reason  # sent to every master; "": the job need not stop
        self._exit_code: int | None = None  # set once the job is over
        self._deadlines: list[tuple[float, int]] = []  # (monotonic time, signal for living replicas)
        self._monitor = LoopMonitor()  # of the master
        self._start_at: float | None = None  # monotonic time at which to start a master
        self._full_since: float | None = None

    def fork_replicas(self, server: ForkServer | None, start_server: Callable[[], ForkServer]) -> None:
        """Fork workers and ps from this server, or from one that is started now. Without this they are spawned."""
        self._starter.use_server(server, start_server)

    def watch_attached(self, readable: int) -> None:
        """Stop the job once this descriptor is readable: a command line's pipe or pidfd, or a signal's pipe."""
        self._selector.register(readable, selectors.EVENT_READ, lambda _: self._detach(readable))

    def adopt_replicas(self) -> None:
        """Watch the replicas of the previous launcher. How the others exited is unknown."""
        for running in list(self._record.replicas.values()):
            if child := WatchedProcess.adopt(running):
                self._watch(child)
            else:
                self._record_exit(ExitedProcess(running.replica, running.pid, None, None, self._clock.now()))
        # The previous launcher may have died before it recorded a replica that it had just started.
        watched = {child.running.pid for child in self._children.values()}
        for running in find_replicas(self._directory, self._run):
            if running.pid not in watched and (child := WatchedProcess.adopt(running)):
                self._adopt_unrecorded(child)

    def _adopt_unrecorded(self, child: WatchedProcess) -> None:
        name, pid = child.running.replica, child.running.pid
        if name in self._children:
            _log.error("%s runs twice: killing pid %d, which is in no launcher's record", name, pid)
            child.signal(signal.SIGKILL)
            child.stop_watching()
            return
        _log.info("%s (pid %d) was not in the record of the previous launcher", name, pid)
        self._watch(child)

    def adopt_master(self, end: socket.socket) -> None:
        """Continue with the running master; if it has died meanwhile, `run` starts another."""
        if self._record.master and (child := WatchedProcess.adopt(self._record.master)):
            self._connect(child, end)
        else:
            end.close()

    def run(self) -> int:
        self._certificates.try_issue((*PERMANENT_ROLES, *self._children), self._clock.now())
        if self._master is None:
            self._start_master()
        self._save()
        while self._exit_code is None or self._children or self._master:
            for key, events in self._selector.select(self._until_deadline()):
                # An earlier event of this batch may have closed it.
                if self._selector.get_map().get(key.fd) == key:
                    key.data(events)
            self._run_due()
            self._check_master()
            self._starter.check()
            reap_orphans(self._watched_pids)
            self._certificates.renew_due(self._clock.now())
        self._starter.close()
        self._certificates.close()
        return self._exit_code

    def _execute(self, command: Command) -> None:
        match command:
            case LaunchCommand():
                self._launch(command)
            case SignalCommand(replica, signal_number):
                if self._starter.is_waiting(replica):
                    self._starter.spawn_waiting()
                if child := self._children.get(replica):
                    child.signal(signal_number)
            case HeartbeatCommand(limit_s):
                self._monitor.record_heartbeat(time.monotonic(), limit_s)
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
            self._certificates.issue(name, self._clock.now())
        except OSError as exc:
            self._record_failed_start(command, exc)
        else:
            self._starter.start(command)

    def _record_failed_start(self, command: ReplicaCommand, exc: OSError) -> None:
        with suppress(OSError), command.log.open("a") as output:
            output.write(f"cannot start {command.name}: {command.argv[0]}: {exc.strerror}\n")
        self._record_exit(ExitedProcess(command.name, 0, NOT_EXECUTABLE_CODE, None, self._clock.now()))

    def _add_replica(self, child: WatchedProcess) -> None:
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
        self._record_exit(self._with_reason(child.reap(self._clock.now(), out_of_memory=out_of_memory)))

    def _with_reason(self, exited: ExitedProcess) -> ExitedProcess:
        """A replica that failed may have left behind why."""
        if exited.code in (None, 0):
            return exited
        return replace(exited, reason=vital.read_exit_reason(self._directory.exit_reason_file(exited.replica)))

    def _record_exit(self, exited: ExitedProcess) -> None:
        self._record.replicas.pop(exited.replica, None)
        self._certificates.stop_renewing(exited.replica)
        self._record.exited.append(exited)
        # Reported before it is saved: survivors wait for this report, and if this launcher dies in between,
        # the next one finds the replica in the record and sees that it has ended.
        self._report(exited)
        self._save()
        _log.info("%s (pid %d) %s", exited.replica, exited.pid, exited.description)

    def _detach(self, readable: int) -> None:
        self._selector.unregister(readable)
        _log.info("detached: the command line has ended, or the launcher got SIGTERM")
        self._record.is_detached = True
        self._save()
        self._report(DetachedReport())

    def _start_master(self) -> None:
        self._start_at = None
        try:
            started = start_master(self._directory, self._run, self._master_module, self._environ, self._clock.now())
        except OSError as exc:
            _log.error("cannot start a master yet: %s", exc)
            self._start_at = time.monotonic() + RETRY_S
        else:
            self._connect(*started)
            self._save()

    def _waits_for_disk(self) -> bool:
        """Whether the disk is full, but not yet for MAX_DISK_FULL_S."""
        if shutil.disk_usage(self._directory.root).free >= MIN_FREE_BYTES:
            self._full_since = None
            return False
        now = time.monotonic()
        if self._full_since is None:
            _log.warning("no space is left for %s: the master is restarted once there is some", self._directory.root)
            self._full_since = now
        return now - self._full_since < MAX_DISK_FULL_S

    def _connect(self, child: WatchedProcess, end: socket.socket) -> None:
        self._starter.spawn_waiting()  # the first report to a new master has all replicas that were launched
        master = MasterProcess(child, end, self._selector, self._execute, self._restart_master)
        self._master, self._record.master = master, child.running
        self._monitor = LoopMonitor()
        master.watch()
        running = tuple(_started_report(process) for process in self._record.replicas.values())
        master.send(ReplicasReport(running, tuple(self._record.exited)))
        if self._record.is_detached:
            master.send(DetachedReport())
        if self._stop_reason:
            master.send(StopReport(self._stop_reason))

    def _restart_master(self) -> None:
        """Handle the end of the master: restart it, now or later, or give up."""
        assert self._master is not None
        death = self._with_reason(self._master.child.reap(self._clock.now()))
        self._master, self._record.master = None, None
        if self._exit_code is None:
            _log.warning("master (pid %d) %s before the job was over", death.pid, death.description)
            served = self._has_served(death.pid)
            if death.code != WRONG_JOB_CODE and self._waits_for_disk():
                self._start_at = time.monotonic() + RETRY_S
            elif isinstance(decision := self._restart_policy.decide(death, served=served), GiveUp):
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
            return True  # unknown, so assume that it has

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
        # Workers write a checkpoint first: the result and the signal mean to them that no master will follow.
        spec = self._directory.load_spec()
        self._end(decision.exit_code, spec.timing.grace_period_s + spec.checkpoint.retry_s)

    def _explain(self, decision: GiveUp, log: Path) -> str:
        root = self._directory.root
        if decision.exit_code != WRONG_JOB_CODE and shutil.disk_usage(root).free < MIN_FREE_BYTES:
            return f"no space is left for {root}: free some, then continue with --resume ({decision.reason})"
        try:
            tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        except OSError as exc:
            tail = f"(it cannot be read: {exc})"
        is_wrong = decision.exit_code == WRONG_JOB_CODE
        advice = "" if is_wrong else "; workers save their state: continue with --resume"
        return f"{decision.reason}{advice}. {log} ends with:\n{tail}"

    def _end(self, exit_code: int, grace_s: float | None) -> None:
        if self._exit_code is not None:
            return
        if grace_s is None:
            grace_s = self._directory.load_spec().timing.grace_period_s
        self._exit_code = exit_code
        self._starter.cancel_waiting()
        now = time.monotonic()
        # Workers of a finished job leave by themselves; those of a failed or stopped job may not know yet.
        self._deadlines = [
            (now + (grace_s if exit_code == 0 else 0.0), signal.SIGTERM),
            (now + grace_s + KILL_AFTER_S, signal.SIGKILL),
        ]

    def _check_master(self) -> None:
        """Kill a master whose loop is stuck: the next one continues from its journal."""
        if self._master is None or self._exit_code is not None:
            return
        child = self._master.child
        match self._monitor.check(time.monotonic()):
            case LoopHealth.SILENT:
                _log.warning("the master (pid %d) sends no heartbeat: it dumps its stacks", child.running.pid)
                child.signal(stacks.DUMP_SIGNAL)
            case LoopHealth.STALLED if not stacks.has_debugger(child.running.pid):
                _log.error("the master (pid %d) is stuck: it is killed and replaced", child.running.pid)
                child.signal(signal.SIGKILL)

    def _until_deadline(self) -> float | None:
        instants = [instant for instant, _ in self._deadlines[:1]] + (
            [self._start_at] if self._start_at is not None else []
        )
        delays = [max(0.0, instant - time.monotonic()) for instant in instants]
        intervals = (
            self._certificates.check_interval_s,
            self._monitor.check_interval_s,
            self._starter.check_interval_s,
        )
        return min([*delays, *(interval_s for interval_s in intervals if interval_s)], default=None)

    def _run_due(self) -> None:
        """Start a master that is due, and send the signals that are due at the end of the job."""
        if self._exit_code is None and self._start_at is not None and self._start_at <= time.monotonic():
            if self._waits_for_disk():
                self._start_at = time.monotonic() + RETRY_S
            else:
                self._start_master()
        while self._deadlines and self._deadlines[0][0] <= time.monotonic():
            _, signal_number = self._deadlines.pop(0)
            # The master ends by itself; only one that hangs to the very end is killed.
            is_last = signal_number == signal.SIGKILL
            for child in [*self._children.values(), *([self._master.child] if self._master and is_last else [])]:
                _log.info("the job is over: signal %d to %s", signal_number, child.running.replica)
                child.signal(signal_number)

    def _report(self, report: Report) -> None:
        if self._master is not None:
            self._master.send(report)

    def _save(self) -> None:
        try:
            self._record.save(self._directory.launcher)
        except OSError as exc:
            # Only a successor needs the record; if this launcher failed, nothing would end its processes.
            _log.error("%s cannot be written: %s", self._directory.launcher, exc.strerror)


def _started_report(process: RunningProcess) -> StartedReport:
    return StartedReport(process.replica, process.pid, process.started_at)
