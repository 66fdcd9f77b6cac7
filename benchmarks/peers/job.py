"""The interface between a benchmark and a running job of ElasticDL or of a peer."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from netns import Host, Network

GLOBAL_BATCH = 256


@dataclass(frozen=True, slots=True)
class Setting:
    """The setting of one repetition: a scratch directory, and (for silence only) a network with a host per worker."""

    directory: Path
    workers: int
    max_workers: int
    network: Network | None = None

    @property
    def steps(self) -> Path:
        return self.directory / "steps"

    @property
    def environ(self) -> dict[str, str]:
        return {"BENCH_STEPS_DIR": str(self.steps), "OMP_NUM_THREADS": "1"}

    def host(self, number: int) -> Host | None:
        return self.network.hosts[number] if self.network else None


class Job(Protocol):
    """A started job. Each method injects one event and returns at once; `close` leaves no process behind."""

    def join(self) -> None: ...

    def leave(self) -> None: ...

    def kill(self) -> None: ...

    def silence(self) -> int:
        """Returns the pid of the silenced worker: the steps that it reports afterwards do not count."""

    def kill_coordinator(self) -> None: ...

    def close(self) -> None: ...


class System(Protocol):
    """ElasticDL or a peer."""

    name: str

    def start(self, setting: Setting) -> Job: ...


@dataclass(slots=True)
class Processes:
    """The processes that a benchmark started, each in its own session, with its output in a file."""

    directory: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(
        self, name: str, argv: Sequence[str], environ: Mapping[str, str], host: Host | None = None
    ) -> subprocess.Popen[bytes]:
        prefix = host.prefix if host else []
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*prefix, *argv],
                env={**os.environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def close(self) -> None:
        for process in self.started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port(address: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port
