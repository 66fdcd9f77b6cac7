"""`python -m elasticdl.launcher.pod worker`, as a pod starts it: it becomes the worker of its replica."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from elasticdl.launcher import pod
from elasticdl.spec.directory import JobDirectory
from tests.unit.launcher.test_pod import mount

SOURCE = str(Path(pod.__file__).parents[2])
WAIT_S = 60.0
LOOK_S = 0.05


def start(folder: Path, role: str, replica: str) -> tuple[subprocess.Popen[bytes], Path]:
    places = mount(folder)
    log = folder / "log"
    environ = dict(os.environ) | {
        "PYTHONPATH": SOURCE,
        "ELASTICDL_POD_IP": "127.0.0.1",
        "ELASTICDL_POD_NAME": f"digits-{replica}",
        "ELASTICDL_NAMESPACE": "default",
        "ELASTICDL_REPLICA": replica,
    }
    mounted = ["--spec", str(places.spec), "--secret", str(places.secret), "--state", str(places.state)]
    argv = [sys.executable, "-m", "elasticdl.launcher.pod", role, *mounted]
    with log.open("wb") as output:
        process = subprocess.Popen(argv, cwd=places.work, env=environ, stdout=output, stderr=output)
    return process, log


def wait_module(process: subprocess.Popen[bytes], module: str, log: Path) -> psutil.Process:
    """The same process, once it has become another program."""
    found = psutil.Process(process.pid)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline and process.poll() is None:
        if module in found.cmdline():
            return found
        time.sleep(LOOK_S)
    raise AssertionError(f"never became {module}: {log.read_text()}")


def test_a_pod_becomes_the_worker_of_its_replica(tmp_path: Path) -> None:
    process, log = start(tmp_path, "worker", "worker-7")
    try:
        worker = wait_module(process, "elasticdl.worker", log)
        environ = worker.environ()

        assert (environ["ELASTICDL_WORKER"], environ["ELASTICDL_ADDRESS"]) == ("worker-7", "127.0.0.1")
        directory = JobDirectory(Path(environ["ELASTICDL_JOB_DIRECTORY"]))
        assert directory.root == tmp_path / "state" / "job"
        assert directory.load_spec().workers.address == "127.0.0.1"
        assert Path(worker.cwd()) == tmp_path / "image"
    finally:
        process.kill()
        process.wait(30)


def test_a_worker_in_a_pod_ends_as_anywhere(tmp_path: Path) -> None:
    """It runs: the image holds no model, and the worker itself says so."""
    process, log = start(tmp_path, "worker", "worker-0")
    try:
        assert process.wait(WAIT_S) == 2
        assert f"worker-0 ERROR --model_zoo={tmp_path}/image/model_zoo: expected a directory" in log.read_text()
    finally:
        process.kill()
        process.wait(30)


def test_a_pod_whose_secret_is_missing_ends_with_the_code_of_a_wrong_job(tmp_path: Path) -> None:
    places = mount(tmp_path)
    (places.secret / "token").unlink()
    environ = dict(os.environ) | {f"ELASTICDL_{name}": "x" for name in ("POD_IP", "POD_NAME", "NAMESPACE", "REPLICA")}
    mounted = ["--spec", str(places.spec), "--secret", str(places.secret), "--state", str(places.state)]

    done = subprocess.run(
        [sys.executable, "-m", "elasticdl.launcher.pod", "ps", *mounted], env=environ, capture_output=True, text=True,
        timeout=WAIT_S,
    )  # fmt: skip

    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {places.secret}/token: expected a file")
