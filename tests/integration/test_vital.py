"""A process ends with the reason when a vital thread fails, and is replaced."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from elasticdl import vital
from elasticdl.spec import JobSpec, ModelSpec, PsId, WorkerId
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.env import PsEnv, WorkerEnv
from tests import native
from tests.integration.job import Jobs


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    prelude = "import sys, time, threading\nfrom pathlib import Path\nfrom elasticdl import vital\n"
    argv = [sys.executable, "-c", prelude + textwrap.dedent(script), *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_a_vital_thread_that_fails_ends_its_process_and_leaves_the_reason(tmp_path: Path) -> None:
    done = run(
        """
        vital.end_process_on_failure(Path(sys.argv[1]))
        vital.VitalThread(lambda: {}["nothing"], name="server").start()
        time.sleep(60)
        """,
        tmp_path / "reason",
    )

    assert done.returncode == vital.EXIT_CODE
    assert vital.read_exit_reason(tmp_path / "reason") == "thread server failed: KeyError: 'nothing'"
    assert "Traceback" in done.stderr and "thread server failed" in done.stderr


def test_guarded_code_in_a_foreign_thread_that_fails_ends_its_process_and_leaves_the_reason(tmp_path: Path) -> None:
    done = run(
        """
        vital.end_process_on_failure(Path(sys.argv[1]))
        def beat():
            with vital.guard_process("the heartbeat"):
                raise ValueError("no pulse")
        threading.Thread(target=beat).start()
        time.sleep(60)
        """,
        tmp_path / "reason",
    )

    assert done.returncode == vital.EXIT_CODE
    assert vital.read_exit_reason(tmp_path / "reason") == "the heartbeat failed: ValueError: no pulse"


def test_an_exception_of_the_main_thread_leaves_its_reason(tmp_path: Path) -> None:
    done = run(
        "vital.end_process_on_failure(Path(sys.argv[1])); raise OSError(24, 'Too many open files')", tmp_path / "reason"
    )

    assert done.returncode == 1 and "Traceback" in done.stderr
    assert vital.read_exit_reason(tmp_path / "reason") == "OSError: [Errno 24] Too many open files"


def test_a_process_without_descriptors_still_looks_for_its_master() -> None:
    done = run(
        """
        import grpc, resource
        from elasticdl.rpc.channel import open_channel
        def ask():
            with open_channel("127.0.0.1:1", None) as channel:
                try:
                    channel.unary_unary("/nobody/there")(b"", timeout=1.0)
                except grpc.RpcError as exc:
                    print(exc.code())
        ask()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit[1]))
        for _ in range(3):
            time.sleep(0.2)  # grpc ends its engine in a thread of its own
            ask()
        """
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["StatusCode.UNAVAILABLE"] * 4


def test_the_reason_is_written_even_without_free_descriptors(tmp_path: Path) -> None:
    done = run(
        """
        import os, resource
        vital.end_process_on_failure(Path(sys.argv[1]))
        resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
        def work():
            while True:
                os.dup(0)
        vital.VitalThread(work, name="server").start()
        time.sleep(60)
        """,
        tmp_path / "reason",
    )

    assert done.returncode == vital.EXIT_CODE
    assert "Too many open files" in vital.read_exit_reason(tmp_path / "reason")


def test_a_process_that_is_no_replica_continues() -> None:
    done = run(
        """
        thread = vital.VitalThread(lambda: {}["nothing"], name="server")
        thread.start()
        thread.join()
        print("on")
        """
    )

    assert (done.returncode, done.stdout) == (0, "on\n")
    assert "KeyError" in done.stderr


def test_a_reason_that_was_not_written_is_empty(tmp_path: Path) -> None:
    assert vital.read_exit_reason(tmp_path / "none") == ""


def run_replica(environ: dict[str, str], module: str) -> subprocess.CompletedProcess[str]:
    """Without a master: a replica whose thread fails needs none to end."""
    argv = [sys.executable, "-m", module]
    return subprocess.run(argv, env=os.environ | environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    job_directory = JobDirectory(tmp_path / "job")
    job_directory.create(JobSpec(name="job", model=ModelSpec(definition="a.b")))
    return job_directory


@pytest.mark.parametrize(
    "thread", ["serving-1", "ps-router", "ps-authenticator", "elasticdl-session", "ps-tasks", "ps-expiry"]
)
def test_a_ps_ends_with_any_of_its_threads(directory: JobDirectory, thread: str) -> None:
    native.require()
    env = PsEnv(directory.root, PsId("ps-0"), "127.0.0.1", 1, f"ps-0/{thread}=raise")

    done = run_replica(env.to_environ(), "elasticdl.ps")

    assert done.returncode == vital.EXIT_CODE
    assert f"thread {thread} failed: InjectedFault" in vital.read_exit_reason(directory.exit_reason_file("ps-0"))


@pytest.mark.parametrize("thread", ["elasticdl-session", "peers", "elasticdl-signals"])
def test_a_worker_ends_with_any_of_its_threads(directory: JobDirectory, thread: str) -> None:
    env = WorkerEnv(directory.root, WorkerId("worker-0"), "127.0.0.1", 1, f"worker-0/{thread}=raise")

    done = run_replica(env.to_environ(), "elasticdl.worker")

    assert done.returncode == vital.EXIT_CODE
    assert f"thread {thread} failed: InjectedFault" in vital.read_exit_reason(directory.exit_reason_file("worker-0"))


@pytest.mark.parametrize(
    "thread",
    ["mesh", *(pytest.param(thread, marks=pytest.mark.slow) for thread in ("elasticdl-session", "elasticdl-saver"))],
)
def test_a_worker_whose_thread_fails_is_replaced_and_its_reason_reported(jobs: Jobs, thread: str) -> None:
    job = jobs.train("failing", 2, slow=True, pause_s=0.2, faults=f"worker-1/{thread}=raise")

    lost = job.wait_event("worker-lost")
    members = job.wait_members(2, step=1)
    job.hurry()

    assert set(members) == {"worker-0", "worker-2"}
    assert lost["replica"] == "worker-1"
    assert f"exited with code 1: thread {thread} failed: InjectedFault" in lost["reason"]
    assert "Traceback" in job.log("worker-1")
    assert job.result()["phase"] == "succeeded"
    job.wait_gone()


@pytest.mark.slow
def test_a_ps_whose_thread_fails_is_replaced_and_its_reason_reported(jobs: Jobs) -> None:
    native.require()
    from tests.integration.ps.test_fleet import wait_serving

    job = jobs.train("failing", 1, "--num_ps_pods=2", slow=True, pause_s=0.2, faults="ps-1/ps-router=raise")

    wait_serving(job, 2, without="ps-1")

    lost = next(e for e in job.events() if e["kind"] == "ps-lost")
    assert lost["replica"] == "ps-1"
    assert "exited with code 1: thread ps-router failed: InjectedFault" in lost["reason"]
    job.hurry()
    assert job.result()["phase"] == "succeeded"
    job.wait_gone()
