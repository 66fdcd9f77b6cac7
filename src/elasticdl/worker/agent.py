"""The agent of an unmodified script (`elasticdl run --compat ddp`), as torchrun's agent is that of its workers.

The script is a child process with the environment of torchrun: RANK, WORLD_SIZE, MASTER_ADDR and so on. A round of the
master is one start of the script. `Expelled` means that another round follows: the agent ends the script and reports
that it is ready. This module does not import torch, so that a replacement is ready in a fraction of a second.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from pathlib import Path

from elasticdl.errors import RunSuperseded, SpecError, is_job_error
from elasticdl.launcher.replica_environ import inherited_environ
from elasticdl.model import script_source
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.session import MasterSession, exit_superseded
from elasticdl.signals import notify_on_sigterm
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.env import WorkerEnv
from elasticdl.worker.script_process import ScriptProcess, script_environ

_log = logging.getLogger(__name__)

_POLL_S = 0.5  # between two checks of the deadlines
_KILL_AFTER_GRACE_SHARE = 0.8  # of the grace period: the rest is for the agent itself to end


class ReservedPort:
    """A port that the system gives to no other process, while the script may listen on it.

    The socket is bound and never listens. With SO_REUSEADDR on both sides, as the store of torch sets it, another
    socket may listen on its port; a socket that asks for any free port does not get it.
    """

    def __init__(self, bound: socket.socket) -> None:
        self._socket = bound
        host, port = bound.getsockname()[:2]
        self.address = f"{host}:{port}"

    @classmethod
    def bind(cls, host: str) -> ReservedPort:
        """Reserve a free port of `host`."""
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, 0))
        return cls(bound)

    def close(self) -> None:
        self._socket.close()


class ScriptAgent:
    """Starts and ends the script as the master says. `run` returns the exit reason of the worker."""

    def __init__(self, env: WorkerEnv, spec: JobSpec) -> None:
        self._env = env
        self._spec = spec
        self._changed = threading.Condition()
        self._script: ScriptProcess | None = None
        self._port: ReservedPort | None = None
        self._round = 0  # the newest round whose script was started
        self._next_round: pb.Round | None = None
        self._is_expelled = False
        self._has_finished = False
        self._is_released = False
        self._stop_reason = ""
        self._leave_reason = ""
        self._ended_at: float | None = None  # since when the script has not worked
        self._hello = pb.Hello(replica=env.worker, pid=os.getpid(), host=socket.gethostname(), step=-1)
        self._session = MasterSession(
            JobDirectory(env.job_directory), spec, lambda: self._hello, self._make_heartbeat, self._on_message,
            run=env.run, on_run_superseded=self._end_process,
        )  # fmt: skip

    def run(self) -> str:
        """Run the script until the job is over or this worker leaves; returns the exit reason."""
        notify_on_sigterm(self.leave)
        self._check_script()
        self._session.start()
        self._report_ready()
        while True:
            with self._changed:
                reason = self._poll(time.monotonic())
                if reason:
                    return reason
                self._changed.wait(_POLL_S)

    def leave(self, reason: str) -> None:
        """This worker must leave as soon as its script has ended. From any thread."""
        with self._changed:
            if self._leave_reason:
                return
            self._leave_reason, self._hello.leaving = reason, True
            self._session.send(pb.WorkerMessage(leaving=pb.Leaving(reason=reason)))
            self._changed.notify_all()

    def report_failure(self, message: str, *, wrong_job: bool) -> None:
        """Report to the master why this worker cannot go on."""
        failure = pb.Failure(message=message, wrong_job=wrong_job, permanent=wrong_job)
        self._session.send(pb.WorkerMessage(failure=failure))

    def close(self, reason: str) -> None:
        """Say goodbye. A script that still runs is killed."""
        if self._script is not None:
            self._script.kill()
        self._session.close(reason, self._spec.timing.rpc_timeout_s)
        if self._port is not None:
            self._port.close()

    # ---- one poll, with the condition held

    def _poll(self, now: float) -> str:
        """Do what is due now; returns the exit reason at the end, else an empty text."""
        if self._script is not None and self._script.exit_code is None:
            if self._must_end_script:
                self._end_script(self._script, now)
            return ""
        if self._script is not None:
            self._report_script_exit(self._script)
            self._script, self._ended_at = None, self._ended_at or now
        if self._is_released or self._leave_reason or self._is_orphaned:
            return self._leave_reason or ("released" if self._is_released else "the master is away for good")
        if self._stop_reason:
            self._report_finished(self._stop_reason)
            return ""
        if self._is_expelled:
            self._is_expelled = False
            self._report_ready()
        if self._next_round is not None:
            self._start_script(self._next_round, now)
            self._next_round = None
        return ""

    @property
    def _is_orphaned(self) -> bool:
        return self._session.disconnected_s > self._spec.timing.orphan_timeout_s

    @property
    def _must_end_script(self) -> bool:
        is_over = self._is_released or self._is_orphaned or bool(self._stop_reason or self._leave_reason)
        return is_over or self._is_expelled or self._next_round is not None

    def _end_script(self, script: ScriptProcess, now: float) -> None:
        if script.terminated_at is None:
            _log.info("the script of round %d gets SIGTERM", self._round)
            self._ended_at = now
            script.terminate(now)
        elif now - script.terminated_at >= _KILL_AFTER_GRACE_SHARE * self._spec.timing.grace_period_s:
            _log.warning("the script of round %d does not end: it gets SIGKILL", self._round)
            script.kill()

    def _report_script_exit(self, script: ScriptProcess) -> None:
        self._hello.round = 0
        _log.info("the script of round %d %s", self._round, script.exit_reason)
        if script.terminated_at is not None:
            return  # the agent has ended it
        if script.exit_code == 0:
            self._report_finished("")
        else:
            broken = pb.RoundFailed(round=self._round, reason=script.exit_reason)
            self._session.send(pb.WorkerMessage(round_failed=broken))

    def _report_finished(self, reason: str) -> None:
        if not self._has_finished:
            self._has_finished = True
            self._session.send(pb.WorkerMessage(finished=pb.Finished(reason=reason)))

    def _report_ready(self) -> None:
        if self._port is not None:
            self._port.close()
        # Each round has another port: a process that is late for the last round cannot reach the next one.
        self._port = ReservedPort.bind(self._env.address)
        self._hello.ready, self._hello.store_address = True, self._port.address
        self._has_finished = False
        self._session.send(pb.WorkerMessage(ready=pb.Ready(store_address=self._port.address)))

    def _start_script(self, round_: pb.Round, now: float) -> None:
        script = self._spec.script
        assert script is not None
        own = script_environ(self._spec, round_, self._env.worker)
        environ = {"PYTHONUNBUFFERED": "1"} | inherited_environ(os.environ) | own
        self._script = ScriptProcess([sys.executable, script.path, *script.arguments], environ, self._changed)
        self._round = self._hello.round = round_.id
        _log.info("round %d: rank %s of %s", round_.id, own["RANK"], own["WORLD_SIZE"])
        self._script.start()
        gap_s = now - self._ended_at if self._ended_at is not None else 0.0
        self._ended_at = None
        self._session.send(pb.WorkerMessage(round_entered=pb.RoundEntered(round=round_.id, gap_s=gap_s)))

    def _check_script(self) -> None:
        script = self._spec.script
        assert script is not None
        is_in_image = self._spec.cluster is not None
        script_source.check_in_worker(Path(script.path), script_source.check_unmodified, is_in_image=is_in_image)

    # ---- from the session's threads

    def _make_heartbeat(self) -> pb.Heartbeat:
        return pb.Heartbeat(round=self._hello.round, step=-1)

    def _on_message(self, message: pb.MasterMessage) -> None:
        if message.WhichOneof("message") == "leave":
            self.leave(message.leave.reason)
            return
        with self._changed:
            match message.WhichOneof("message"):
                case "round" if message.round.id > self._round and self._is_member(message.round):
                    self._next_round = message.round
                case "reset":
                    self._is_expelled, self._next_round = True, None
                case "stop":
                    self._stop_reason = message.stop.reason or "stopped"
                case "release":
                    self._is_released = True
            self._changed.notify_all()

    def _end_process(self, exc: RunSuperseded) -> None:
        with self._changed:
            if self._script is not None:
                self._script.kill()
        exit_superseded(exc)

    def _is_member(self, round_: pb.Round) -> bool:
        return any(member.worker == self._env.worker for member in round_.members)


def run_agent(env: WorkerEnv, spec: JobSpec) -> int:
    """The worker process of a job with an unmodified script; its exit code."""
    agent = ScriptAgent(env, spec)
    try:
        reason = agent.run()
    except SpecError as exc:
        return _report_failure(agent, str(exc), wrong_job=is_job_error(exc))
    except OSError as exc:  # no port, no memory for another process
        return _report_failure(agent, f"the script cannot be started: {exc}", wrong_job=False)
    _log.info("exit reason: %s", reason)
    agent.close(reason)
    return 0


def _report_failure(agent: ScriptAgent, message: str, *, wrong_job: bool) -> int:
    _log.error("%s", message)
    agent.report_failure(message, wrong_job=wrong_job)
    agent.close(message)
    return 2 if wrong_job else 1
