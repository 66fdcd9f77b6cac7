"""ElasticDL as a user runs it: `elasticdl train --detach`, `scale`, `status --json`, and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from peers.job import GLOBAL_BATCH, Job, Processes, Setting

from elasticdl.launcher.local import processes
from elasticdl.spec import WorkerId
from elasticdl.spec.directory import JobDirectory, read_json
from elasticdl.spec.env import HOME, WorkerEnv

MODELS = Path(__file__).parents[1] / "models"
NAME = "bench"


class ElasticDL:
    name = "elasticdl"

    def __init__(self, *options: str) -> None:
        self._options = options

    def start(self, setting: Setting) -> Job:
        return _ElasticDLJob(setting, self._options)


class _ElasticDLJob:
    def __init__(self, setting: Setting, options: tuple[str, ...]) -> None:
        self._setting = setting
        self._environ = setting.environ | {HOME: str(setting.directory / "home")}
        self._processes = Processes(setting.directory)
        # In a network the last worker is started by the benchmark, on a host that can be silenced.
        self._replicas = setting.workers - (1 if setting.network else 0)
        self._outsider: subprocess.Popen[bytes] | None = None
        train = ["train", "--detach", "--job_name", NAME, "--model_zoo", str(MODELS), "--model_def", "mlp.forward"]
        train += ["--data_format", "python", "--training_data", "made-up", "--num_epochs", "1000", "--threads", "1"]
        train += ["--global_batch_size", str(GLOBAL_BATCH), "--min_workers", "1"]
        train += ["--num_workers", str(self._replicas), "--max_workers", str(setting.max_workers), *options]
        if setting.network:
            train += ["--address", setting.network.address, "--insecure"]
        self._run_command(*train)
        if setting.network:
            self._start_outsider()

    def join(self) -> None:
        self._replicas += 1
        self._run_command("scale", NAME, "--workers", str(self._replicas))

    def leave(self) -> None:
        os.kill(self._members()[-1]["pid"], signal.SIGTERM)

    def kill(self) -> None:
        os.kill(self._members()[-1]["pid"], signal.SIGKILL)

    def silence(self) -> int:
        assert self._outsider is not None and self._setting.network is not None
        self._setting.network.silence(self._setting.network.hosts[0])
        return self._outsider.pid

    def kill_coordinator(self) -> None:
        master = read_json(self._directory.master)
        assert master is not None, "the master has not written its address"
        os.kill(master["pid"], signal.SIGKILL)

    def close(self) -> None:
        processes.kill_processes(self._directory)
        self._processes.close()

    @property
    def _directory(self) -> JobDirectory:
        (spec,) = (self._setting.directory / "home").rglob("spec.json")
        return JobDirectory(spec.parent)

    def _members(self) -> list[dict[str, Any]]:
        status = json.loads(self._run_command("status", NAME, "--json"))
        return [worker for worker in status["workers"] if worker["state"] == "member"]

    def _start_outsider(self) -> None:
        """Starts a worker on another machine: it is not launched by the job, but has its directory and token."""
        host = self._setting.host(0)
        assert host is not None
        environ = WorkerEnv(
            self._directory.root, WorkerId("outsider"), host.address, self._directory.run_number
        ).to_environ()
        argv = [sys.executable, "-m", "elasticdl.worker"]
        self._outsider = self._processes.start("outsider", argv, self._setting.environ | environ, host)

    def _run_command(self, *arguments: str) -> str:
        finished = subprocess.run(
            [sys.executable, "-m", "elasticdl.cli", *arguments],
            env={**os.environ, **self._environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if finished.returncode:
            raise RuntimeError(
                f"elasticdl {' '.join(arguments)}: exit code {finished.returncode}\n{finished.stdout}{finished.stderr}"
            )
        return finished.stdout
