"""torchft: a lighthouse and one replica group per worker."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from peers.job import GLOBAL_BATCH, Job, Processes, Setting, free_port

SCRIPT = Path(__file__).with_name("torchft_train.py")


class Torchft:
    name = "torchft"

    def __init__(self, programs: Path) -> None:
        self._programs = programs

    def start(self, setting: Setting) -> Job:
        return _TorchftJob(setting, self._programs)


class _TorchftJob:
    def __init__(self, setting: Setting, programs: Path) -> None:
        self._setting = setting
        self._python = str(programs / "python")
        self._processes = Processes(setting.directory)
        self._workers: list[subprocess.Popen[bytes]] = []
        address = setting.network.address if setting.network else "127.0.0.1"
        self._lighthouse_address = f"{address}:{free_port(address)}"
        lighthouse = [str(programs / "torchft_lighthouse"), "--min_replicas=1", "--quorum_tick_ms=100"]
        # Its README says 10000; with 1000 it goes on sooner after a death.
        lighthouse += ["--join_timeout_ms=1000", f"--bind={self._lighthouse_address}"]
        self._lighthouse = self._processes.start("lighthouse", lighthouse, {})
        for _ in range(setting.workers):
            self.join()

    def join(self) -> None:
        number = len(self._workers)
        host = self._setting.host(number)
        argv = [self._python, "-W", "ignore", str(SCRIPT), "--replica", str(number)]
        # No fixed global batch: each replica group keeps its own.
        argv += ["--batch", str(GLOBAL_BATCH // 2)]
        environ = self._setting.environ | {
            "TORCHFT_LIGHTHOUSE": f"http://{self._lighthouse_address}",
            "BENCH_ADDRESS": host.address if host else "127.0.0.1",
            "GLOO_SOCKET_IFNAME": host.interface if host else "lo",
        }
        self._workers.append(self._processes.start(f"worker-{number}", argv, environ, host))

    def leave(self) -> None:
        self._workers[-1].send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._workers[-1].kill()

    def silence(self) -> int:
        network = self._setting.network
        assert network is not None
        network.silence(network.hosts[len(self._workers) - 1])
        return self._workers[-1].pid

    def kill_coordinator(self) -> None:
        self._lighthouse.kill()

    def close(self) -> None:
        self._processes.close()
