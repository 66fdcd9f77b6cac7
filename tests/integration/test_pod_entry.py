"""`python -m elasticdl.launcher.kubernetes.pod worker`, as a pod starts it: it becomes the worker of its replica."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from elasticdl.launcher.kubernetes import manifest, pod
from elasticdl.spec.directory import JobDirectory
from tests.unit.launcher.kubernetes.test_pod import mount
from tests.waiting import until

SOURCE = str(Path(pod.__file__).parents[3])
WAIT_S = 60.0


def start(folder: Path, role: str, replica: str, *, is_held_up: bool = False) -> tuple[subprocess.Popen[bytes], Path]:
    """`is_held_up`: it waits for the description of its job for ever."""
    places = mount(folder, tls=False)  # there is no master that would give it a certificate
    if is_held_up:
        (places.spec / manifest.SPEC_KEY).unlink()
        os.mkfifo(places.spec / manifest.SPEC_KEY)
    log = folder / "log"
    environ = dict(os.environ) | {
        "PYTHONPATH": SOURCE,
        "ELASTICDL_POD_IP": "127.0.0.1",
        "ELASTICDL_POD_NAME": f"digits-{replica}",
        "ELASTICDL_NAMESPACE": "default",
        "ELASTICDL_REPLICA": replica,
    }
    mounted = ["--spec", str(places.spec), "--secret", str(places.secret), "--state", str(places.state)]
    argv = [sys.executable, "-m", "elasticdl.launcher.kubernetes.pod", role, *mounted]
    with log.open("wb") as output:
        process = subprocess.Popen(argv, cwd=places.work, env=environ, stdout=output, stderr=output)
    return process, log


def test_a_pod_becomes_the_worker_of_its_replica_and_exits_with_its_status(tmp_path: Path) -> None:
    """It runs: the image holds no model, and the worker itself says so."""
    process, log = start(tmp_path, "worker", "worker-7")
    try:
        assert process.wait(WAIT_S) == 2
        assert f"worker-7 ERROR --model_zoo={tmp_path}/image/model_zoo: expected a directory" in log.read_text()
        assert JobDirectory(tmp_path / "state" / "job").load_spec().workers.address == "127.0.0.1"
    finally:
        process.kill()
        process.wait(30)


def test_a_pod_that_is_preempted_while_it_starts_ends_at_once(tmp_path: Path) -> None:
    """Process 1 of a container ignores the signal unless it installs a handler."""
    process, _ = start(tmp_path, "worker", "worker-0", is_held_up=True)
    try:
        wait_caught(process.pid, signal.SIGTERM)
        process.terminate()

        assert process.wait(WAIT_S) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait(30)


def wait_caught(pid: int, number: int) -> None:
    """Waits until the process has a handler for the signal."""

    def is_caught() -> bool:
        status = Path(f"/proc/{pid}/status").read_text()
        (caught,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
        return bool(int(caught, 16) >> (number - 1) & 1)

    until(f"process {pid} listens for signal {number}", is_caught, WAIT_S)


def test_a_pod_whose_secret_is_missing_exits_with_the_code_of_an_invalid_job(tmp_path: Path) -> None:
    places = mount(tmp_path)
    (places.secret / "token").unlink()
    environ = dict(os.environ) | {f"ELASTICDL_{name}": "x" for name in ("POD_IP", "POD_NAME", "NAMESPACE", "REPLICA")}
    mounted = ["--spec", str(places.spec), "--secret", str(places.secret), "--state", str(places.state)]

    done = subprocess.run(
        [sys.executable, "-m", "elasticdl.launcher.kubernetes.pod", "ps", *mounted],
        env=environ, capture_output=True, text=True,
        timeout=WAIT_S,
    )  # fmt: skip

    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {places.secret}/token: expected a file")
