"""The commands of a laptop on jobs of a cluster: in a script, and in a terminal that a user watches."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.job import ClusterJob, Named
from tests.cluster.kube import ROOT, Kube
from tests.cluster.terminal import ENDED, Terminal, why_not
from tests.integration.job import STEPS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NO_TERMINAL = why_not()
LONG_S = 0.3  # a pass: a minute and more until the job ends by itself
GONE_S = 15.0  # far below the grace period of 35 s: nobody waits for a master that will not come


def wait_gone(job: ClusterJob) -> None:
    deleted_at = time.monotonic()
    job.wait(lambda: not job.pods(), "the end of its pods")
    assert time.monotonic() - deleted_at < GONE_S


def test_commands_find_a_job_by_the_current_context(kube: Kube, named: Named, tmp_path: Path) -> None:
    job = named("obedient")
    job.train(1, f"--checkpoint_dir={tmp_path / 'checkpoints'}", slow=True, pause_s=LONG_S)
    job.wait_members(1, step=2)

    table = [line.split() for line in kube.elasticdl("jobs").stdout.splitlines()]
    assert "where" in table[0]
    (row,) = [row for row in table if row[0] == job.name]
    assert row[2:5] == ["training", "running", "1"]

    seen = kube.elasticdl("status", job.name).stdout
    assert "1 worker, 1 desired, 1 to 4 allowed" in seen

    following = subprocess.Popen(
        [sys.executable, "-m", "elasticdl.cli", "logs", job.name, "-f"],
        env={**kube.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert kube.elasticdl("scale", job.name, "--workers=2").stdout == "scaling from 1 to 2 workers\n"
    job.wait_members(2)

    def written() -> str:
        return kube.elasticdl("logs", job.name, "--worker=1", "--on=kubernetes").stdout

    job.wait(lambda: "round 2: rank 1 of 2" in written(), "its word of the round")

    assert "stopping after the running step, with a checkpoint" in kube.elasticdl("stop", job.name).stdout
    result = job.result()
    assert (result["phase"], result["exit_code"]) == ("stopped", 130)
    assert result["checkpoint"].startswith(str(tmp_path / "checkpoints"))
    followed, _ = following.communicate(timeout=60)
    assert following.returncode == 0
    assert {line.partition(" | ")[0].strip() for line in followed.splitlines()} == {"master", "worker-0", "worker-1"}

    status = json.loads(kube.elasticdl("status", job.name, "--json", "--on=kubernetes").stdout)
    assert (status["phase"], status["directory"]) == ("stopped", None)
    over = kube.elasticdl("scale", job.name, "--workers=1", check=False)
    assert over.returncode == 2 and "is over (stopped)" in over.stderr
    assert "already exists" in kube.elasticdl("train", *job.options(), "--model_def=tiny.forward", check=False).stderr
    kube.elasticdl("stop", job.name, "--delete")
    wait_gone(job)
    gone = kube.elasticdl("status", job.name, check=False)
    assert gone.returncode == 2 and f"no job {job.name!r} in" in gone.stderr


def test_a_resumed_job_shows_its_progress_before_it_has_workers(kube: Kube, named: Named, tmp_path: Path) -> None:
    job = named("again")
    checkpoints = f"--checkpoint_dir={tmp_path / 'checkpoints'}"
    job.train(1, checkpoints, slow=True)
    job.wait_members(1, step=STEPS // 2)
    kube.elasticdl("stop", job.name)
    stopped = job.result()
    assert stopped["phase"] == "stopped", job.story()
    kube.elasticdl("stop", job.name, "--delete")
    wait_gone(job)
    job.wait(
        lambda: not kube.kubectl("get", "configmap", f"{job.name}-status", "--ignore-not-found"), "its objects' end"
    )

    job.train(1, checkpoints, "--resume", "--worker_resource_request=cpu=900,memory=700Mi")  # no node has them
    waits = "worker-delayed"
    job.wait(lambda: waits in [event["kind"] for event in job.published().get("events", [])], "a worker that waits")

    status = job.status()
    fields = ("step", "records", "total_records", "epoch", "epochs", "checkpoint_step")
    assert {key: status[key] for key in fields} == {key: stopped[key] for key in fields}
    assert (status["phase"], status["desired_workers"]) == ("pending", 1)
    shown = " ".join(kube.elasticdl("status", job.name).stdout.replace("│", " ").split())
    assert (
        f"resumed from step {stopped['step']}, {stopped['records']:,} of {stopped['total_records']:,} records" in shown
    )
    assert f"step {stopped['step']}" in shown


def test_a_job_that_is_deleted_while_it_trains_ends_in_seconds(kube: Kube, named: Named, tmp_path: Path) -> None:
    job = named("sudden")
    job.train(2, slow=True)
    job.wait_members(2, step=2)

    job.delete()

    wait_gone(job)


@pytest.mark.skipif(bool(NO_TERMINAL), reason=NO_TERMINAL)
def test_a_terminal_shows_the_job_live_and_ctrl_c_stops_it(kube: Kube, named: Named, tmp_path: Path) -> None:
    job = named("shown")
    with Terminal.open(kube, job.name) as terminal:
        start(job, terminal, f"--checkpoint_dir={tmp_path / 'checkpoints'}")
        job.wait_members(2, step=3)
        live = terminal.wait("2 workers, 2 desired, 1 to 4 allowed")
        assert "│ records ━" in live and "worker-joined" in live

        terminal.press("C-c")
        last = terminal.wait(f"{ENDED}130")

    assert f"╭─ {job.name} stopped" in last and f"checkpoint  {tmp_path}" in last
    assert last.count("╭─") == 2, f"one picture and one summary, nothing left of older ones:\n{last}"
    assert "Traceback" not in live + last and "Exception" not in live + last, live + last
    assert job.result()["phase"] == "stopped"


@pytest.mark.skipif(bool(NO_TERMINAL), reason=NO_TERMINAL)
def test_a_second_ctrl_c_deletes_all_objects(kube: Kube, named: Named, tmp_path: Path) -> None:
    job = named("twice")
    with Terminal.open(kube, job.name) as terminal:
        start(job, terminal, pause_s=2.0)  # the first Ctrl-C waits for the end of a step
        job.wait_members(2, step=1)
        terminal.press("C-c")
        terminal.wait("Ctrl-C again")  # two that come at once are one signal
        terminal.press("C-c")
        last = terminal.wait(ENDED)

    assert f"{ENDED}130" in last, last
    assert f"{job.name}: deleted; its pods end, and only the files on its volumes are left" in last
    assert "Traceback" not in last, last
    wait_gone(job)


@pytest.mark.skipif(bool(NO_TERMINAL), reason=NO_TERMINAL)
def test_a_finished_job_reports_its_records(kube: Kube, named: Named, tmp_path: Path) -> None:
    job = named("ended")
    with Terminal.open(kube, job.name) as terminal:
        start(job, terminal, is_slow=False)
        last = terminal.wait(f"{ENDED}0", 120.0)

    assert "none lost, none twice" in last and f"{STEPS} of {STEPS}" in last
    assert str(job.output) in last
    assert "Traceback" not in last, last


def start(job: ClusterJob, terminal: Terminal, *options: str, is_slow: bool = True, pause_s: float = 0.05) -> None:
    """Attached, as a person does: without --detach."""
    job.shared_directory.mkdir(parents=True, exist_ok=True)
    if is_slow:
        job.slow.touch()
    terminal.elasticdl("train", *job.options(), *job.tiny(2, pause_s), *options)
