"""A ps's connection to the master: heartbeats go out, the fleet and tasks come in."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable

from elasticdl import stacks
from elasticdl.ps.fleet import FleetView
from elasticdl.ps.server.slot_transfer import remove_backup
from elasticdl.ps.tables.state import PsState
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.session import MasterSession, exit_superseded
from elasticdl.spec import JobSpec, PsId
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.env import PsEnv

POLL_S = 1.0  # between two checks whether the job still exists


class PsMasterClient:
    """Connects a ps to the master. `on_task` and `on_fleet` are called from the session's thread."""

    def __init__(
        self,
        env: PsEnv,
        spec: JobSpec,
        ps_state: PsState,
        address: str,
        beat: Callable[[], pb.PsHeartbeat],
        on_task: Callable[[pb.FleetTask], None],
        on_fleet: Callable[[FleetView], None],
    ) -> None:
        self.directory = JobDirectory(env.job_directory)
        self._timing = spec.timing
        self._ps_state = ps_state
        self._hello = pb.Hello(
            replica=env.ps, pid=os.getpid(), host=socket.gethostname(), step=-1, ps_address=address, ready=True
        )
        self._on_task, self._on_fleet = on_task, on_fleet
        self._changed = threading.Condition()
        self._end: str | None = None
        self._left_by = float("inf")
        self._session = MasterSession(
            self.directory,
            spec,
            self._say_hello,
            beat,
            self._handle_message,
            run=env.run,
            on_run_superseded=exit_superseded,
        )

    def start(self) -> None:
        self._session.start()

    def close(self, reason: str) -> None:
        self._session.close(reason, self._timing.rpc_timeout_s)

    # ---- messages to the master

    def send_task_report(self, done: pb.TaskReport) -> None:
        self._session.send(pb.WorkerMessage(task_report=done))

    def send_failure(self, message: str, *, wrong_job: bool, permanent: bool) -> None:
        failure = pb.Failure(message=message, wrong_job=wrong_job, permanent=permanent)
        self._session.send(pb.WorkerMessage(failure=failure))

    def request_leave(self, reason: str) -> None:
        """Asks the master to let this ps leave, once others have its slots or its grace period is over."""
        if self._hello.leaving:
            return
        self._hello.leaving = True
        if self.directory.result.exists():
            self.request_end("the job is over")
        self._left_by = time.monotonic() + self._timing.grace_period_s
        self._session.send(pb.WorkerMessage(leaving=pb.Leaving(reason=reason)))

    def request_end(self, reason: str) -> None:
        """Makes `wait_end` return. Only the first reason counts."""
        with self._changed:
            self._end = self._end if self._end is not None else reason
            self._changed.notify_all()

    def wait_end(self) -> str:
        """Waits until this ps may end; returns the reason."""
        with self._changed:
            while self._end is None:
                self._changed.wait(POLL_S)
                if time.monotonic() > self._left_by:
                    return f"not all slots had moved within {self._timing.grace_period_s:g} s"
                # Workers without a master save their state within this time, and the rows are part of it.
                if self._session.disconnected_s > self._timing.orphan_timeout_s + self._timing.grace_period_s:
                    return f"the master has been away for {self._timing.orphan_timeout_s:g} s"
            return self._end

    # ---- messages from the master

    def _handle_message(self, message: pb.MasterMessage) -> None:
        match message.WhichOneof("message"):
            case "fleet":
                fleet = FleetView.from_proto(message.fleet)
                self._ps_state.set_slot_map(fleet.slot_map)
                self._on_fleet(fleet)
            case "task":
                self._on_task(message.task)
            case "release":
                self.request_end("released")
            case "dump_stacks":
                stacks.dump_stacks(message.dump_stacks.reason)

    def _say_hello(self) -> pb.Hello:
        self._hello.map_version = self._ps_state.slot_map.version
        return self._hello


class BackupCleaner:
    """Removes backups that the fleet no longer has: on a ps that is gone, or of slots that others own now."""

    def __init__(self, ps_state: PsState) -> None:
        self._ps_state = ps_state
        self._fleet: FleetView | None = None

    def update_fleet(self, fleet: FleetView) -> None:
        before, self._fleet = self._fleet, fleet
        if before is None:
            return
        me = self._ps_state.name
        if me in before.backups and me not in fleet.backups:
            remove_backup(self._ps_state)
        for owner in [ps for ps, holder in before.backups.items() if holder == me]:
            if fleet.backups.get(owner, me) != me or self._is_settled(owner, fleet):
                self._ps_state.drop_backup_of(owner)

    @staticmethod
    def _is_settled(owner: PsId, fleet: FleetView) -> bool:
        """Whether a ps is lost and others own all its slots."""
        return owner in fleet.lost and owner not in fleet.slot_map.members
