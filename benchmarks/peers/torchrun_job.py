"""torchrun: one agent per worker, as on separate machines; the first agent hosts the c10d rendezvous."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
from peers.job import GLOBAL_BATCH, Job, Processes, Setting, free_port

SCRIPT = Path(__file__).with_name("ddp_train.py")


class Torchrun:
    def __init__(self, name: str = "torchrun", rendezvous: str = "") -> None:
        self.name = name
        self._rendezvous = rendezvous  # e.g. "last_call_timeout=1"

    def start(self, setting: Setting) -> Job:
        return _TorchrunJob(setting, self._rendezvous)


class _TorchrunJob:
    def __init__(self, setting: Setting, rendezvous: str) -> None:
        self._setting = setting
        self._rendezvous = rendezvous
        self._processes = Processes(setting.directory)
        self._agents: list[subprocess.Popen[bytes]] = []
        self._address = setting.network.hosts[0].address if setting.network else "127.0.0.1"
        self._port = free_port()
        for _ in range(setting.workers):
            self.join()

    def join(self) -> None:
        number = len(self._agents)
        host = self._setting.host(number)
        environ = self._setting.environ | {
            # torch 2.13 hangs in the second rendezvous when agents and workers share the store.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "GLOO_SOCKET_IFNAME": host.interface if host else "lo",
        }
        self._agents.append(self._processes.start(f"agent-{number}", self._argv(number), environ, host))

    def leave(self) -> None:
        self._agents[-1].send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._worker(-1).kill()

    def silence(self) -> int:
        network = self._setting.network
        assert network is not None
        network.silence(network.hosts[len(self._agents) - 1])
        return self._worker(-1).pid

    def kill_coordinator(self) -> None:
        self._agents[0].kill()

    def close(self) -> None:
        # Workers are in sessions of their own and outlive a killed agent.
        workers = [worker for agent in self._agents for worker in _descendants(agent.pid)]
        workers += [process for process in psutil.process_iter() if _belongs(process, self._setting.directory)]
        self._processes.close()
        for worker in workers:
            if worker.is_running():
                worker.kill()

    def _worker(self, number: int) -> psutil.Process:
        (worker,) = [child for child in _descendants(self._agents[number].pid) if str(SCRIPT) in child.cmdline()]
        return worker

    def _argv(self, number: int) -> Sequence[str]:
        host = self._setting.host(number)
        agent = [sys.executable, "-m", "torch.distributed.run"]
        agent += [f"--nnodes=1:{self._setting.max_workers}", "--nproc_per_node=1", "--max_restarts=100"]
        agent += ["--rdzv_backend=c10d", f"--rdzv_endpoint={self._address}:{self._port}", "--rdzv_id=bench"]
        # On one machine any agent could become the host of the rendezvous: make it the first.
        agent += [f"--rdzv_conf={','.join(filter(None, [f'is_host={int(number == 0)}', self._rendezvous]))}"]
        agent += [f"--local_addr={host.address if host else '127.0.0.1'}"]
        checkpoint = str(self._setting.directory / "checkpoint.pt")
        return [*agent, str(SCRIPT), "--global-batch", str(GLOBAL_BATCH), "--checkpoint", checkpoint]


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _belongs(process: psutil.Process, directory: Path) -> bool:
    try:
        return str(directory / "checkpoint.pt") in process.cmdline()
    except psutil.Error:
        return False
