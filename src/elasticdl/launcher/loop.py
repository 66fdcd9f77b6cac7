"""The launcher's one loop: the master's commands in, ends of processes out.

It decides nothing about the job, except that a dead master is started again.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import shutil
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from elasticdl.clock import Clock
from elasticdl.launcher import wire
from elasticdl.launcher.child import Child, inherited
from elasticdl.launcher.interface import Exited
from elasticdl.launcher.link import Link, start_master
from elasticdl.launcher.record import Record
from elasticdl.launcher.restarts import WRONG_JOB, GiveUp, Restarts
from elasticdl.spec.directory import JobDirectory, read_json, write_private

NOT_EXECUTABLE = 127  # as a shell says it
KILL_AFTER_S = 5.0  # between SIGTERM and SIGKILL once the job is over
TAIL_BYTES = 2000
FULL_BYTES = 64 << 10  # a disk with less room than this is full
LOG = logging.getLogger("elasticdl")


class Loop:
    """Runs until the job is over and every replica has ended; `run` returns the job's exit code."""

    def __init__(
        self, directory: JobDirectory, record: Record, *, master: str, clock: Clock, restarts: Restarts
    ) -> None:
        self._directory = directory
        self._record = record
        self._module = master
        self._clock = clock
        self._restarts = restarts
        self._selector = selectors.DefaultSelector()
        self._children: dict[str, Child] = {}
        self._master: Link | None = None
        self._environ = inherited(os.environ)
        self._exit_code: int | None = None  # set once the job is over
        self._deadlines: list[tuple[float, int]] = []  # (monotonic time, signal for whoever still lives)

    def watch_attached(self, readable: int) -> None:
        """Stop the job when descriptor `readable` is: a command line's pipe or pidfd, or a signal to the launcher."""
        self._selector.register(readable, selectors.EVENT_READ, lambda _: self._detached(readable))

    def adopt_replicas(self) -> None:
        """Watch the replicas of the launcher before this one. How those ended that are gone, nobody can know."""
        for running in list(self._record.replicas.values()):
            if child := Child.adopt(running):
                self._watch(child)
            else:
                self._ended(Exited(running.replica, running.pid, None, None, self._clock.now()))

    def adopt_master(self, end: socket.socket) -> None:
        """Go on with the living master; should it have died meanwhile, `run` starts another."""
        if self._record.master and (child := Child.adopt(self._record.master)):
            self._connect(child, end)
        else:
            end.close()

    def run(self) -> int:
        if self._master is None:
            self._start_master()
        self._save()
        while self._exit_code is None or self._children or self._master:
            for key, events in self._selector.select(self._until_deadline()):
                # An earlier one of this batch may have closed it.
                if self._selector.get_map().get(key.fd) == key:
                    key.data(events)
            self._keep_deadlines()
        return self._exit_code

    def _perform(self, document: dict[str, Any]) -> None:
        match document["command"]:
            case "launch":
                self._launch(document["replica"], document["argv"], document["environ"])
            case "signal":
                if child := self._children.get(document["replica"]):
                    child.signal(document["signal"])
            case "over":
                self._over(document["exit_code"], document.get("grace_s"))
            case unknown:
                LOG.error("the master sent an unknown command: %r", unknown)

    def _launch(self, name: str, argv: list[str], environ: dict[str, str]) -> None:
        if self._exit_code is not None:
            return
        if name in self._children:
            self._tell(wire.started(self._children[name].running))
            return
        log = self._directory.log(name)
        try:
            child = Child.spawn(name, argv, environ=self._environ | environ, log=log, now=self._clock.now())
        except OSError as exc:
            with suppress(OSError), log.open("a") as output:
                output.write(f"cannot start {name}: {argv[0]}: {exc.strerror}\n")
            self._ended(Exited(name, 0, NOT_EXECUTABLE, None, self._clock.now()))
            return
        self._watch(child)
        self._save()
        self._tell(wire.started(child.running))

    def _watch(self, child: Child) -> None:
        self._children[child.running.replica] = child
        self._record.replicas[child.running.replica] = child.running
        self._selector.register(child, selectors.EVENT_READ, lambda _: self._reap(child))

    def _reap(self, child: Child) -> None:
        self._selector.unregister(child)
        del self._children[child.running.replica]
        self._ended(child.reap(self._clock.now()))

    def _ended(self, exited: Exited) -> None:
        self._record.replicas.pop(exited.replica, None)
        self._record.exited.append(exited)
        # Told before it is kept: survivors wait for this news, and a launcher that dies in between
        # leaves a record from which its successor finds out.
        self._tell(wire.exited(exited))
        self._save()
        LOG.info("%s (pid %d) %s", exited.replica, exited.pid, exited.why)

    def _detached(self, readable: int) -> None:
        self._selector.unregister(readable)
        LOG.info("detached: the command line is gone, or the launcher was told to end")
        self._record.detached = True
        self._save()
        self._tell({"event": "detached"})

    def _start_master(self) -> None:
        self._connect(*start_master(self._directory, self._module, self._environ, self._clock.now()))

    def _connect(self, child: Child, end: socket.socket) -> None:
        link = Link(child, end, self._selector, self._perform, self._master_ended)
        self._master, self._record.master = link, child.running
        link.open()
        link.tell(wire.replicas(self._record.replicas.values(), self._record.exited))
        if self._record.detached:
            link.tell({"event": "detached"})

    def _master_ended(self) -> None:
        assert self._master is not None
        death = self._master.child.reap(self._clock.now())
        self._master, self._record.master = None, None
        if self._exit_code is None:
            LOG.warning("master (pid %d) %s before the job was over", death.pid, death.why)
            served = (read_json(self._directory.master) or {}).get("pid") == death.pid
            decision = self._restarts.decide(death, served=served)
            if isinstance(decision, GiveUp):
                self._give_up(decision)
            else:
                self._start_master()
        self._save()

    def _give_up(self, decision: GiveUp) -> None:
        log = self._directory.log("master")
        LOG.error("%s; see %s", decision.reason, log)
        if not self._directory.result.exists():
            result = {"phase": "failed", "reason": self._explain(decision, log), "exit_code": decision.exit_code}
            self._directory.reserve.unlink(missing_ok=True)
            try:
                write_private(self._directory.result, json.dumps(result))
            except OSError as exc:
                LOG.error("%s cannot be written: %s", self._directory.result, exc.strerror)
        self._over(decision.exit_code, None)

    def _explain(self, decision: GiveUp, log: Path) -> str:
        root = self._directory.root
        if decision.exit_code != WRONG_JOB and shutil.disk_usage(root).free < FULL_BYTES:
            return f"no space is left for {root}: free some, then go on with --resume ({decision.reason})"
        tail = log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
        return f"{decision.reason}. {log} ends with:\n{tail}"

    def _over(self, exit_code: int, grace_s: float | None) -> None:
        if self._exit_code is not None:
            return
        if grace_s is None:
            grace_s = self._directory.load_spec().timing.grace_s
        self._exit_code = exit_code
        now = time.monotonic()
        # A finished job has told its workers to go; those of any other may not know yet.
        self._deadlines = [
            (now + (grace_s if exit_code == 0 else 0.0), signal.SIGTERM),
            (now + grace_s + KILL_AFTER_S, signal.SIGKILL),
        ]

    def _until_deadline(self) -> float | None:
        return max(0.0, self._deadlines[0][0] - time.monotonic()) if self._deadlines else None

    def _keep_deadlines(self) -> None:
        while self._deadlines and self._deadlines[0][0] <= time.monotonic():
            _, number = self._deadlines.pop(0)
            # The master ends by itself; only one that hangs to the very end is killed.
            is_last = number == signal.SIGKILL
            for child in [*self._children.values(), *([self._master.child] if self._master and is_last else [])]:
                LOG.info("the job is over: signal %d to %s", number, child.running.replica)
                child.signal(number)

    def _tell(self, document: dict[str, Any]) -> None:
        if self._master is not None:
            self._master.tell(document)

    def _save(self) -> None:
        try:
            self._record.save(self._directory.launcher)
        except OSError as exc:
            # Only a launcher after this one needs it; without this one nobody would end what runs.
            LOG.error("%s cannot be written: %s", self._directory.launcher, exc.strerror)
