"""Runs an unmodified script as a child process: with the environment of torchrun, to its end and the reason for it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobSpec
from elasticdl.vital import VitalThread

_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ")  # torch puts it before the lines of a traceback
_EXCEPTION = re.compile(r"[\w.]+(Error|Exception|Interrupt|Exit)(:|$)")
_CRASH_SIGNALS = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
_FORWARD_TIMEOUT_S = 1.0  # for the last output of a script that left processes behind


def script_environ(spec: JobSpec, round_: pb.Round, worker: str) -> dict[str, str]:
    """The variables in which torchrun tells a process its rank; there is one process per worker.

    Workers that share an address share a machine, hence its GPUs: LOCAL_RANK counts among them.
    """
    hosts = [member.store_address.rpartition(":")[0] for member in round_.members]
    rank = [member.worker for member in round_.members].index(worker)
    groups = list(dict.fromkeys(hosts))
    address, _, port = round_.members[0].store_address.rpartition(":")
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(hosts)),
        "LOCAL_RANK": str(hosts[:rank].count(hosts[rank])),
        "LOCAL_WORLD_SIZE": str(hosts.count(hosts[rank])),
        "GROUP_RANK": str(groups.index(hosts[rank])),
        "GROUP_WORLD_SIZE": str(len(groups)),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(len(hosts)),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": str(round_.id - 1),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.workers.failure_budget),
        "TORCHELASTIC_RUN_ID": spec.name,
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # the script of rank 0 hosts the store
        "OMP_NUM_THREADS": str(spec.workers.threads),
    }


def exit_reason(code: int, last_line: str) -> str:
    """Why a script ended, in one line: `exited with code 1: ValueError: …`."""
    names = {-member.value: member.name for member in signal.Signals}
    how = f"exited with code {code}" if code >= 0 else f"was killed by {names.get(code, f'signal {-code}')}"
    # A script that is killed from outside has not said why; one that aborts may have raised an exception before.
    has_reason = last_line and (code > 0 or -code in _CRASH_SIGNALS)
    return f"{how}: {last_line}" if has_reason else how


def more_telling_line(before: str, line: str) -> str:
    """The line that says more about a failure: that of an exception (`[rank1]: ValueError: …`), else the later one.

    Libraries warn while a process ends, after the traceback.
    """
    line = _RANK_PREFIX.sub("", line.strip())
    if not line or (_EXCEPTION.match(before) and not _EXCEPTION.match(line)):
        return before
    return line


class ScriptProcess:
    """One run of the script, in the process group of the agent, so that nothing of it outlives the replica."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], changed: threading.Condition) -> None:
        self._argv = list(argv)
        self._environ = dict(environ)
        self._changed = changed
        self._process: subprocess.Popen[bytes] | None = None
        self._exit_code: int | None = None
        self._last_line = ""  # of standard error: the line that names the exception, else the last one
        self.terminated_at: float | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._argv, env=self._environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert self._process.stderr is not None
        forwarder = VitalThread(self._forward_stderr, args=(self._process.stderr,), name="script-output")
        forwarder.start()
        VitalThread(self._wait_for_exit, args=(forwarder,), name="script").start()

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._exit_code

    @property
    def exit_reason(self) -> str:
        assert self._exit_code is not None
        return exit_reason(self._exit_code, self._last_line)

    def terminate(self, now: float) -> None:
        self.terminated_at = now
        self._send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._send_signal(signal.SIGKILL)

    def _send_signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _forward_stderr(self, stderr: IO[bytes]) -> None:
        """Copy its standard error to the agent's, and remember the line that names the exception."""
        unfinished = b""
        while piece := os.read(stderr.fileno(), 1 << 16):
            with contextlib.suppress(OSError):  # a full disk: the script must not wait for the log
                sys.stderr.buffer.write(piece)
                sys.stderr.buffer.flush()
            *lines, unfinished = (unfinished + piece).split(b"\n")
            for line in lines:
                self._last_line = more_telling_line(self._last_line, line.decode(errors="replace"))

    def _wait_for_exit(self, forwarder: threading.Thread) -> None:
        assert self._process is not None
        code = self._process.wait()
        forwarder.join(_FORWARD_TIMEOUT_S)
        with self._changed:
            self._exit_code = code
            self._changed.notify_all()
