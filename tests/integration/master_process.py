"""A real master process with a launcher made of a thread, and workers made of sessions."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from elasticdl.errors import RunSuperseded
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.session import MasterSession
from elasticdl.spec.directory import JobDirectory
from tests.waiting import until

PATIENCE_S = 20.0


def wait_until(is_so: Callable[[], bool], condition: str) -> None:
    until(condition, is_so, PATIENCE_S)


class FakeLauncher:
    """Starts the master and notes its commands; workers are sessions of the test."""

    def __init__(self, directory: JobDirectory) -> None:
        self.directory = directory
        self.commands: list[dict[str, Any]] = []
        self.running: dict[str, int] = {}
        self.exited: list[dict[str, Any]] = []
        self.master = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._ours, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-m", "elasticdl.master", str(self.directory.root), "--launcher-fd"]
            log = self.directory.log_file("master").open("ab")
            master = subprocess.Popen([*argv, str(theirs.fileno())], pass_fds=[theirs.fileno()], stderr=log)
            log.close()
        running = [{"replica": name, "pid": pid, "started_at": 0.0} for name, pid in self.running.items()]
        self._tell({"event": "replicas", "running": running, "exited": self.exited})
        threading.Thread(target=self._read, args=(self._ours,), daemon=True).start()
        return master

    def _read(self, end: socket.socket) -> None:
        with contextlib.suppress(ConnectionError), end.makefile("r") as lines:
            for line in lines:
                command = json.loads(line)
                self.commands.append(command)
                if command["command"] == "launch" and command["replica"] not in self.running:
                    self.running[command["replica"]] = 1000 + len(self.running)
                    pid = self.running[command["replica"]]
                    self._tell({"event": "started", "replica": command["replica"], "pid": pid, "started_at": 0.0})

    def _tell(self, document: dict[str, Any]) -> None:
        self._ours.sendall(json.dumps(document).encode() + b"\n")

    def exit(self, replica: str, code: int | None = None, signal: int | None = None) -> None:
        pid = self.running.pop(replica)
        gone = {"replica": replica, "pid": pid, "code": code, "signal": signal, "ended_at": 0.0}
        self.exited.append(gone)
        self._tell({"event": "exited"} | gone)

    def kill_master(self) -> None:
        self.master.kill()
        self.master.wait()

    def restart_master(self) -> None:
        self.kill_master()
        self._ours.close()
        self.master = self._spawn()

    def launched(self, replica: str) -> bool:
        return any(c["command"] == "launch" and c["replica"] == replica for c in self.commands)

    def close(self) -> None:
        self.kill_master()
        self._ours.close()


class FakeWorker:
    """Says what a worker says; keeps what the master tells it."""

    def __init__(self, directory: JobDirectory, name: str, pid: int = 1, run: int = 0) -> None:
        self.name = name
        self.pid = pid
        self.round = 0
        self.step = -1
        self.heard: list[pb.MasterMessage] = []
        self.superseded_error: RunSuperseded | None = None
        self.session = MasterSession(
            directory, directory.load_spec(), self._hello, self._heartbeat, self._on_message,
            run=run or directory.run_number, on_run_superseded=self._on_run_superseded,
        )  # fmt: skip
        self.session.start()

    def _hello(self) -> pb.Hello:
        return pb.Hello(
            replica=self.name, pid=self.pid, host="here", store_address=self.name, round=self.round, step=self.step
        )

    def _heartbeat(self) -> pb.Heartbeat:
        return pb.Heartbeat(round=self.round, step=self.step, records=8 * max(0, self.step))

    def _on_message(self, message: pb.MasterMessage) -> None:
        self.heard.append(message)

    def _on_run_superseded(self, exc: RunSuperseded) -> None:
        self.superseded_error = exc

    def say(self, **message: Any) -> None:
        self.session.send(pb.WorkerMessage(**message))

    def kinds(self) -> list[str]:
        return [message.WhichOneof("message") or "" for message in self.heard]

    def rounds(self) -> list[pb.Round]:
        return [message.round for message in self.heard if message.WhichOneof("message") == "round"]

    def enter(self, number: int) -> None:
        """Wait for round `number`, then say that it was entered."""
        wait_until(lambda: any(r.id >= number for r in self.rounds()), f"{self.name} hears of round {number}")
        self.round = self.rounds()[-1].id
        self.step = max(1, self.step + 1)
        self.say(round_entered=pb.RoundEntered(round=self.round, step=self.step, gap_s=0.01))

    def vanish(self) -> None:
        """Break off without a word, as a killed process does."""
        self.session.abort()
