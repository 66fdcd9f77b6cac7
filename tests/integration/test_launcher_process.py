"""The launcher with real processes. The test itself decides what the master does; see launcher_master."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.launcher.interface import LaunchCommand, RunningProcess
from elasticdl.launcher.local import processes, wire
from elasticdl.launcher.local.record import LauncherRecord
from elasticdl.launcher.local.watched_process import start_ticks
from elasticdl.spec import JobSpec, ModelSpec, TimingSpec
from elasticdl.spec.directory import JobDirectory, read_json
from tests.integration import launcher_master
from tests.waiting import until

TIMEOUT_S = 30.0
SLEEP = "import time; print('up', flush=True); time.sleep(600)"


def _mentions(command_line: Path, root: Path) -> bool:
    try:
        return os.fsencode(root) in command_line.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


class Master:
    """One master process, driven by the test."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(TIMEOUT_S)
        self._connection = connection
        self._lines = wire.JsonLineDecoder()
        self._received: list[dict[str, Any]] = []
        self.pid: int = self.next()["pid"]

    def next(self) -> dict[str, Any]:
        while not self._received:
            received = self._connection.recv(1 << 16)
            assert received, "the master is gone"
            self._received = self._lines.feed(received)
        return self._received.pop(0)

    def send(self, document: dict[str, Any]) -> None:
        self._connection.sendall(wire.encode_line(document))

    def launch(self, name: str, code: str) -> int:
        """Start `python -c code`; returns its pid."""
        self.send(wire.command_document(LaunchCommand(name, "worker", (sys.executable, "-c", code), {"WHO": name})))
        event = self.next()
        assert (event["event"], event["replica"]) == ("started", name)
        pid = event["pid"]
        assert isinstance(pid, int)
        return pid

    def close(self) -> None:
        self._connection.close()


class Job:
    """A launcher under test and the socket its masters connect to."""

    def __init__(self, directory: JobDirectory) -> None:
        self.directory = directory
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(TIMEOUT_S)
        self._listener.bind(str(directory.root / "test.sock"))
        self._listener.listen()
        self._masters: list[Master] = []
        self.launcher = 0

    def start(self, attached_fd: int | None = None) -> None:
        self.launcher = processes.start_launcher(self.directory, attached_fd=attached_fd, master=launcher_master.MODULE)

    def master(self) -> Master:
        """The next master that is started."""
        master = Master(self._listener.accept()[0])
        self._masters.append(master)
        return master

    def wait(self) -> int:
        """The launcher's exit code."""
        _, status = os.waitpid(self.launcher, 0)
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        processes.kill_processes(self.directory)
        for master in self._masters:
            master.close()
        self._listener.close()


@pytest.fixture(autouse=True)
def tests_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes start without the working directory on their path, and the master of these tests lies there."""
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    # The launcher runs the master with -m; it finds the tests from the root of the repository.
    monkeypatch.chdir(Path(__file__).parents[2])
    directory = JobDirectory(tmp_path / "job")
    directory.create(JobSpec(name="job", model=ModelSpec(definition="a.b"), timing=TimingSpec(grace_period_s=0.2)))
    job = Job(directory)
    yield job
    job.close()


def test_the_first_report_to_a_new_master_lists_the_running_replicas(job: Job) -> None:
    job.start()

    assert job.master().next() == {"event": "replicas", "running": [], "exited": []}


@pytest.mark.parametrize(
    ("code", "exit_code", "signal_number"),
    [
        ("pass", 0, None),
        ("raise SystemExit(3)", 3, None),
        ("import os; os.abort()", None, signal.SIGABRT),
    ],
)
def test_the_exit_of_a_replica_is_reported_with_its_code_or_signal(
    job: Job, code: str, exit_code: int | None, signal_number: int | None
) -> None:
    job.start()
    master = job.master()
    master.next()

    pid = master.launch("worker-0", code)

    event = master.next()
    ended_at, peak_bytes = event.pop("ended_at"), event.pop("peak_bytes")
    assert event == {
        "event": "exited",
        "replica": "worker-0",
        "pid": pid,
        "code": exit_code,
        "signal": signal_number,
        "cause": "",
        "reason": "",
    }
    assert isinstance(ended_at, float)
    assert peak_bytes > 0


def test_the_exit_reason_that_a_replica_wrote_is_reported(job: Job) -> None:
    job.start()
    master = job.master()
    master.next()
    reason = job.directory.exit_reason_file("worker-0")

    master.launch("worker-0", f"open({str(reason)!r}, 'w').write('thread server failed'); raise SystemExit(1)")

    assert master.next()["reason"] == "thread server failed"


def test_a_replica_sees_its_environment_and_writes_to_its_own_log(job: Job) -> None:
    job.start()
    master = job.master()
    master.next()

    master.launch("worker-0", "import os; print('i am', os.environ['WHO'])")
    master.next()

    assert job.directory.log_file("worker-0").read_text() == "i am worker-0\n"


def test_a_command_that_cannot_be_executed_exits_with_127_and_a_line_in_its_log(job: Job) -> None:
    job.start()
    master = job.master()
    master.next()

    master.send(wire.command_document(LaunchCommand("worker-0", "worker", ("/no/such/program",))))

    assert master.next()["code"] == 127
    assert "cannot start worker-0: /no/such/program: No such file" in job.directory.log_file("worker-0").read_text()


def test_a_replica_inherits_no_descriptor_of_launcher_or_master(job: Job) -> None:
    job.start()
    master = job.master()
    master.next()

    master.launch("worker-0", SLEEP)
    master.launch("worker-1", "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")
    master.next()

    # The fourth is the descriptor of the listed directory.
    assert job.directory.log_file("worker-1").read_text() == "[0, 1, 2, 3]\n"


def test_a_replica_is_in_a_session_of_its_own_so_that_ctrl_c_does_not_reach_it(job: Job) -> None:
    job.start()
    master = job.master()
    master.next()

    worker = master.launch("worker-0", SLEEP)

    sessions = {os.getsid(pid) for pid in (os.getpid(), job.launcher, master.pid, worker)}
    assert len(sessions) == 4


def test_a_signal_goes_to_the_replica_it_names(job: Job) -> None:
    job.start()
    master = job.master()
    master.next()
    master.launch("worker-0", SLEEP)
    worker = master.launch("worker-1", SLEEP)

    master.send({"command": "signal", "replica": "worker-1", "signal": signal.SIGKILL})

    event = master.next()
    assert (event["replica"], event["pid"], event["signal"]) == ("worker-1", worker, signal.SIGKILL)


def test_a_replica_launched_twice_runs_once(job: Job) -> None:
    job.start()
    master = job.master()
    master.next()

    assert master.launch("worker-0", SLEEP) == master.launch("worker-0", SLEEP)


def test_a_killed_master_is_restarted_and_gets_all_reports_it_missed(job: Job) -> None:
    job.start()
    first = job.master()
    first.next()
    worker = first.launch("worker-0", SLEEP)
    first.launch("worker-1", "raise SystemExit(5)")
    first.next()

    os.kill(first.pid, signal.SIGKILL)

    second = job.master()
    event = second.next()
    assert second.pid != first.pid
    assert [(replica["replica"], replica["pid"]) for replica in event["running"]] == [("worker-0", worker)]
    assert [(replica["replica"], replica["code"]) for replica in event["exited"]] == [("worker-1", 5)]
    os.kill(worker, signal.SIGKILL)
    assert second.next()["signal"] == signal.SIGKILL


def test_a_launcher_without_descriptors_starts_the_master_when_it_has_some_again(job: Job) -> None:
    job.start()
    first = job.master()
    before = resource.prlimit(job.launcher, resource.RLIMIT_NOFILE)
    resource.prlimit(job.launcher, resource.RLIMIT_NOFILE, (3, before[1]))

    os.kill(first.pid, signal.SIGKILL)
    log = job.directory.log_file("launcher")
    until(
        "the master cannot be started",
        lambda: "cannot start a master yet" in log.read_text(),
        TIMEOUT_S,
        tell=log.read_text,
    )
    resource.prlimit(job.launcher, resource.RLIMIT_NOFILE, before)

    assert job.master().pid != first.pid


def test_a_killed_launcher_is_replaced_by_one_that_adopts_living_replicas(job: Job) -> None:
    job.start()
    master = job.master()
    master.next()
    workers = [master.launch(f"worker-{n}", SLEEP) for n in range(2)]

    os.kill(job.launcher, signal.SIGKILL)
    event = master.next()
    os.kill(workers[1], signal.SIGKILL)
    end = master.next()

    assert [replica["pid"] for replica in event["running"]] == workers
    # The new launcher is not its parent, so its exit code is unknown.
    assert (end["replica"], end["code"], end["signal"]) == ("worker-1", None, None)


def test_an_adopted_master_is_restarted(job: Job) -> None:
    job.start()
    first = job.master()
    first.next()
    worker = first.launch("worker-0", SLEEP)
    os.kill(job.launcher, signal.SIGKILL)
    first.next()

    os.kill(first.pid, signal.SIGKILL)

    assert [replica["pid"] for replica in job.master().next()["running"]] == [worker]


def test_the_end_of_the_attached_command_is_reported_to_the_master_and_to_the_next_one(job: Job) -> None:
    reading, writing = os.pipe()
    job.start(attached_fd=reading)
    os.close(reading)
    first = job.master()
    first.next()

    os.close(writing)

    assert first.next() == {"event": "detached"}
    os.kill(first.pid, signal.SIGKILL)
    second = job.master()
    second.next()
    assert second.next() == {"event": "detached"}


def test_a_launcher_that_is_terminated_stops_the_job_as_a_closed_terminal_does(job: Job) -> None:
    job.start()
    master = job.master()
    master.next()

    os.kill(job.launcher, signal.SIGTERM)

    assert master.next() == {"event": "detached"}


def test_at_the_end_of_the_job_all_processes_end_and_the_launcher_has_the_jobs_exit_code(job: Job) -> None:
    job.start()
    master = job.master()
    master.next()
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    workers = [master.launch("worker-0", SLEEP), master.launch("worker-1", stubborn)]

    master.send({"command": "end", "exit_code": 130, "grace_s": 0.1})
    master.close()

    assert job.wait() == 130
    assert [start_ticks(pid) for pid in workers] == [None, None]


def test_a_master_that_cannot_start_ends_the_job_with_the_end_of_its_log(job: Job) -> None:
    (job.directory.root / "crash").touch()

    job.start()

    assert job.wait() == 1
    result = read_json(job.directory.result)
    assert result is not None
    assert (result["phase"], result["exit_code"]) == ("failed", 1)
    assert "this master crashes as it was told to" in result["reason"]


def test_kill_all_leaves_nothing_alive(job: Job) -> None:
    job.start()
    master = job.master()
    master.next()
    worker = master.launch("worker-0", SLEEP)

    processes.kill_processes(job.directory)

    assert [start_ticks(pid) for pid in (job.launcher, master.pid, worker)] == [None, None, None]
    # Nothing is restarted either: a master that outlived its launcher would have started another.
    started = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _mentions(path, job.directory.root)]
    assert started == []


def test_kill_all_spares_a_process_that_reuses_the_pid_of_a_dead_one(job: Job) -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEP], start_new_session=True) as bystander:
        ticks = start_ticks(bystander.pid)
        assert ticks is not None
        LauncherRecord(RunningProcess("launcher", bystander.pid, 0.0, ticks - 1)).save(job.directory.launcher)

        processes.kill_processes(job.directory)

        assert bystander.poll() is None
        bystander.kill()
