"""A whole job through the real command line: tests start it, wait, disturb it and inspect its result."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from safetensors import safe_open

from elasticdl.cli.main import cli
from elasticdl.errors import ElasticDLError
from elasticdl.launcher.interface import RunningProcess
from elasticdl.launcher.local import processes
from elasticdl.launcher.local.record import LauncherRecord
from elasticdl.launcher.local.watched_process import start_ticks
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.client import MasterClient
from elasticdl.spec.directory import JobDirectory, read_json
from elasticdl.spec.env import FAULTS, HOME
from tests.waiting import until

PATIENCE_S = 60.0
# A fault in a given step strikes only who is there then: jobs with faults begin when all their workers are ready.
TOGETHER = ("--timing", "start_timeout_s=60")
LOGICAL_RANKS = 4
RECORDS = 205
EPOCHS = 6
BATCH = 10
STEPS_PER_EPOCH = -(-RECORDS // BATCH)
STEPS = EPOCHS * STEPS_PER_EPOCH
ZOO = Path(__file__).parent
# They start no process: in this one they do the same, without importing anything anew.
IN_PROCESS_VERBS = frozenset({"journal", "scale", "status", "stop", "timeline"})


class Jobs:
    """Starts the jobs of one test in one home, and kills them at its end."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._started: list[Job] = []

    def train(self, name: str, workers: int, *options: str, **how: Any) -> Job:
        """A training job of `tiny.py`, in which only `workers` differ from the undisturbed run."""
        return self.start(
            name, "train", "--training_data", "made-up", "--num_epochs", str(EPOCHS), "--global_batch_size", str(BATCH),
            "--logical_ranks", str(LOGICAL_RANKS), "--max_workers", str(LOGICAL_RANKS), "--num_workers", str(workers),
            *options, **how,
        )  # fmt: skip

    def start(
        self, name: str, verb: str, *options: str, slow: bool = False, pause_s: float = 0.02, faults: str = "",
        model: str = "tiny", function: str = "forward", params: str = "",
    ) -> Job:  # fmt: skip
        """Start a job with the model `tiny.py`. `slow` holds it up until `Job.hurry`."""
        job = Job(self.home, name)
        job.slow.parent.mkdir(parents=True, exist_ok=True)
        if slow:
            job.slow.touch()
        model_params = f"slow={job.slow};pause_s={pause_s}" + (f";{params}" if params else "")
        model_options = ["--model_zoo", str(ZOO), "--model_def", f"{model}.{function}", "--data_format", "python"]
        model_options += ["--model_params", model_params] if function == "forward" else []
        if verb != "evaluate":
            model_options += ["--output", str(job.output)]
        return self.launch(
            job, [verb, "--detach", "--job_name", name, "--threads", "1", *model_options, *options], faults
        )

    def adopt(self, job: Job) -> None:
        """Registers a job that something else starts, so that it is killed with the others."""
        self._started.append(job)

    def launch(self, job: Job, arguments: Sequence[str], faults: str = "", **environ: str) -> Job:
        self._started.append(job)
        verb, *options = arguments
        done = job.command(verb, *(TOGETHER if faults else ()), *options, **{FAULTS: faults}, **environ)
        assert done.returncode == 0, done.stdout + done.stderr
        return job

    def end(self) -> None:
        for job in self._started:
            job.kill()


class Job:
    """One job, inspected and disturbed from outside."""

    def __init__(self, home: Path, name: str) -> None:
        self.name = name
        self.directory = JobDirectory(home / "jobs" / name)
        self.output = home / f"{name}-output"
        self.slow = home / f"{name}-slow"
        self.trouble = home / f"{name}-trouble"
        self._environ = {**os.environ, HOME: str(home)}

    def command(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Runs `elasticdl` with these arguments."""
        if arguments[0] in IN_PROCESS_VERBS:
            return self.invoke(*arguments, **environ)
        argv = [sys.executable, "-m", "elasticdl.cli", *arguments]
        return subprocess.run(
            argv, env=self._environ | environ, capture_output=True, text=True, stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def invoke(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Runs `elasticdl` in this process: for commands that start nothing, or are refused."""
        result = CliRunner().invoke(cli, arguments, env=self._environ | environ)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)

    # ---- looking

    def status(self) -> pb.JobStatus | None:
        """The current status; None after the job has ended."""
        try:
            with MasterClient.connect(self.directory, timeout_s=10.0) as client:
                return client.status()
        except ElasticDLError:
            if self.directory.result.exists():
                return None
            raise

    def document(self) -> dict[str, Any]:
        """The output of `elasticdl status --json`."""
        done = self.command("status", self.name, "--json")
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def wait(self, is_so: Callable[[pb.JobStatus], bool], condition: str) -> pb.JobStatus:
        """Waits until the status of the running job satisfies `is_so`; fails if the job ends before."""

        def ask() -> pb.JobStatus | None:
            status = self.status()
            assert status is not None, f"{self.name} ended before {condition}: {read_json(self.directory.result)}"
            return status if is_so(status) else None

        status = until(condition, ask, PATIENCE_S, tell=self.story)
        assert status is not None
        return status

    def wait_members(self, count: int, step: int = 0) -> dict[str, int]:
        """Waits until `count` workers train and the step is reached. Returns their pids by name, in rank order."""
        condition = f"{count} members at step {step}"
        return members(self.wait(lambda s: len(members(s)) == count and s.step >= step, condition))

    def wait_event(self, kind: str, after: float = 0.0) -> dict[str, Any]:
        """Waits for the first event of this kind since `after`."""
        event = self._wait_file(
            lambda: next((e for e in self.events() if e["kind"] == kind and e["at"] >= after), None), kind
        )
        assert isinstance(event, dict)
        return event

    def wait_log(self, words: str) -> None:
        """Waits until a replica has written these words to its log."""
        self._wait_file(lambda: any(words in path.read_text() for path in self.directory.logs.glob("*.log")), words)

    def result(self, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """Waits for the end of the job and returns its result. Processes may live a moment longer, see `wait_gone`."""
        result = self._wait_file(lambda: read_json(self.directory.result), "the end", timeout_s)
        assert isinstance(result, dict)
        return result

    def wait_gone(self) -> None:
        self._wait_file(lambda: not self.living(), "the end of all processes")

    def events(self) -> list[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError):
            *lines, _ = self.directory.events.read_text().split("\n")  # the last may be written just now
            return [json.loads(line) for line in lines]
        return []

    def kinds(self, worker: str = "") -> list[str]:
        return [e["kind"] for e in self.events() if not worker or e["replica"] == worker]

    def record(self) -> LauncherRecord:
        record = LauncherRecord.load(self.directory.launcher)
        assert record is not None
        return record

    def living(self) -> dict[str, int]:
        """Pids of the job's processes that live."""
        record = self.record()
        recorded = [record.launcher, *([record.master] if record.master else []), *record.replicas.values()]
        return {process.replica: process.pid for process in recorded if start_ticks(process.pid) == process.start_ticks}

    def log(self, replica: str) -> str:
        return self.directory.log_file(replica).read_text()

    def story(self) -> str:
        """The events and the ends of all logs, for the message of a failed test."""
        events = [f"{e['at']:.2f} {' '.join(f'{k}={v}' for k, v in e.items() if v)}" for e in self.events()]
        logs = [f"--- {path.name}\n{path.read_text()[-1500:]}" for path in sorted(self.directory.logs.glob("*.log"))]
        return "\n".join([*events, *logs])

    # ---- disturbing

    def hurry(self) -> None:
        """Lets a slow job run at full speed from now on."""
        self.slow.unlink(missing_ok=True)

    def kill_master(self) -> None:
        master = self.record().master
        assert master is not None
        os.kill(master.pid, signal.SIGKILL)

    def kill_launcher_and_master(self) -> None:
        """Kills both at once, so that neither sees the other's end."""

        def find() -> list[RunningProcess]:
            supervisors = self.find_supervisors()
            names = {process.replica for process in supervisors}
            return supervisors if names == {processes.LAUNCHER, processes.MASTER} else []

        supervisors = until("launcher and master", find, PATIENCE_S, tell=self.story)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for running in supervisors:
                os.kill(running.pid, number)
        until("their end", lambda: not self.find_supervisors(), PATIENCE_S)

    def find_supervisors(self) -> list[RunningProcess]:
        """The living launchers and masters of the job."""
        living = processes.find_processes(self.directory)
        return [process for process in living if process.replica in (processes.LAUNCHER, processes.MASTER)]

    def scale(self, workers: int) -> None:
        done = self.command("scale", self.name, "--workers", str(workers))
        assert done.returncode == 0, done.stderr

    def stop(self) -> None:
        done = self.command("stop", self.name)
        assert done.returncode == 0, done.stderr

    def kill(self) -> None:
        """Kills all processes of the job."""
        if self.directory.launcher.exists():
            processes.kill_processes(self.directory)

    # ---- outcome

    def digest(self) -> str:
        """SHA-256 of the exported weights, after a good end."""
        result = self.result()
        assert (result["phase"], result["exit_code"]) == ("succeeded", 0), f"{result}\n{self.story()}"
        return digest(self.output / "model.safetensors")

    def _wait_file(self, look: Callable[[], Any], condition: str, timeout_s: float = PATIENCE_S) -> Any:
        return until(f"{condition} of {self.name}", look, timeout_s, tell=self.story)


def members(status: pb.JobStatus) -> dict[str, int]:
    """Pids of the members of the round, by name, in rank order."""
    here = sorted((w for w in status.workers if w.state == "member" and w.rank >= 0), key=lambda w: w.rank)
    return {worker.id: worker.pid for worker in here}


def digest(path: Path) -> str:
    """SHA-256 of the tensors of a safetensors file, names included."""
    sha256 = hashlib.sha256()
    with safe_open(path, framework="numpy") as file:
        for name in sorted(file.keys()):
            tensor = file.get_tensor(name)
            sha256.update(f"{name} {tensor.dtype} {tensor.shape}".encode() + tensor.tobytes())
    return sha256.hexdigest()
