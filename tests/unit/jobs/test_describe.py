"""A job file and options are combined to one job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.jobs import home as jobs
from elasticdl.spec import load
from tests.unit.cli.conftest import Run


def dry(elasticdl: Run, *words: object) -> dict[str, Any]:
    result = elasticdl("train", *words, "--dry-run")
    assert result.exit_code == 0, result.stderr
    document = yaml.safe_load(result.stdout)
    assert isinstance(document, dict)
    return document


def test_options_accept_hyphens_and_underscores(elasticdl: Run) -> None:
    low = dry(elasticdl, "--job_name=a", "--model_def=m.f", "--num_workers=3", "--max_step=7", "--no-drop_last")
    high = dry(elasticdl, "--job-name=a", "--model-def=m.f", "--num-workers=3", "--max-steps=7", "--no_drop-last")

    assert low == high
    assert (low["workers"]["replicas"], low["plan"]["max_steps"], low["plan"]["drop_last"]) == (3, 7, False)


def test_an_option_wins_over_the_file_and_the_file_over_the_default(elasticdl: Run, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: a\nmodel: {definition: m.f}\nplan: {epochs: 5, seed: 5}\n")

    job = dry(elasticdl, file, "--num_epochs=7")

    assert (job["plan"]["epochs"], job["plan"]["seed"], job["plan"]["minibatch_size"]) == (7, 5, 64)


def test_a_dry_run_prints_a_job_file_of_the_same_job(elasticdl: Run, tmp_path: Path) -> None:
    job = dry(
        elasticdl, "--model_def=m.f", "--model_params=a=1;b=[1,2]", "--columns=x,y", "--timing=heartbeat_timeout_s=2"
    )
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))

    assert dry(elasticdl, tmp_path / "job.yaml") == job
    assert job["model"]["params"] == {"a": 1, "b": [1, 2]}
    assert (job["data"]["columns"], job["timing"]["heartbeat_timeout_s"]) == (["x", "y"], 2.0)


def test_the_global_batch_is_the_minibatch_times_the_requested_workers(elasticdl: Run) -> None:
    job = dry(elasticdl, "--model_def=m.f", "--minibatch_size=10", "--num_workers=3", "--max_workers=5")

    assert (job["plan"]["global_batch_size"], job["plan"]["logical_ranks"]) == (30, 5)


def test_a_job_without_a_name_gets_a_new_readable_name(elasticdl: Run) -> None:
    assert re.fullmatch(r"mnist-\d{8}-\d{4}-[a-z0-9]{2}", dry(elasticdl, "--model_def=a.mnist.forward")["name"])


def test_relative_paths_are_resolved_from_the_file_or_the_working_directory(elasticdl: Run, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("model: {definition: m.f}\ndata: {training: train.csv}\n")

    job = dry(elasticdl, tmp_path / "job.yaml", "--validation_data=test.csv")

    assert job["data"]["training"] == str(tmp_path / "train.csv")
    assert job["data"]["validation"] == str(tmp_path / "work" / "test.csv")
    assert job["model"]["zoo"] == str(tmp_path)


def test_all_errors_of_options_and_file_are_reported_at_once(elasticdl: Run, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("model: {definition: m.f}\nworkers: {device: tpu}\nepochs: 3\n")

    result = elasticdl("train", tmp_path / "job.yaml", "--seed=x")

    assert result.exit_code == 2
    assert "this job has 3 errors" in result.stderr
    for part in ("workers.device", "epochs: unknown key; did you mean 'plan.epochs'?", "plan.seed (--seed)"):
        assert part in result.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--distribution_strategy=ParameterServerStrategy", "--num_ps_pods=0"], "it needs at least one ps"),
        (["--distribution_strategy=AllreduceStrategy", "--num_ps_pods=1"], "AllreduceStrategy, which has no ps"),
        (["--num_ps_pods=1", "--ps_backups=1"], "needs a second ps; use --num_ps_pods=2"),
        (["--num_ps_pods=1", "--grads_to_wait=2"], "only the sync mode waits for pushes; the mode is hybrid"),
        (["--num_ps_pods=1", "--pull_every=2"], "only the local mode skips pulls of dense variables"),
        (["--num_ps_pods=1", "--max_staleness=2"], "ps.max_staleness: 2 in hybrid mode"),
        (["--num_ps_pods=1", "--ps_memory=much"], "ps.memory_limit (--ps_memory): use a number of bytes"),
        (["--use_async"], "use --ps_mode=async"),
        (
            ["--distribution_strategy=Alreduce"],
            "expected AllreduceStrategy, ParameterServerStrategy, Local; received 'Alreduce'",
        ),
        (["--distribution_strategy=Local", "--num_workers=2"], "Local is one worker"),
        (["--model_params=a"], "--model_params: expected \"name=value;name=value\"; received 'a'"),
        (["--min_workers=4", "--max_workers=2"], "workers: min 4 is above max 2; write them as min <= max"),
        (["--global_batch_size=1"], "plan.global_batch_size: 1 is smaller than the 2 logical ranks"),
        (["--job_name=My_Job"], "name (--job_name): use 1 to 63 of a-z"),
        (
            ["--timing=heartbeat_timeout=2"],
            "timing.heartbeat_timeout: unknown key; did you mean 'heartbeat_timeout_s'?",
        ),
        (["--tls_cert=x"], "certificate, key and ca belong together"),
        (["--resume"], "--resume: which job? Give its --job_name"),
        (["--num_epochs"], "requires an argument"),
        (["none.yaml"], "none.yaml: no such job file"),
    ],
)
def test_a_wrong_job_is_one_message_and_exit_code_2(elasticdl: Run, words: list[str], expected: str) -> None:
    result = elasticdl("train", "--model_def=m.f", *words)

    assert result.exit_code == 2
    assert expected in result.stderr
    assert result.stdout == ""


def test_a_local_strategy_is_one_worker(elasticdl: Run) -> None:
    job = dry(elasticdl, "--model_def=m.f", "--distribution_strategy=Local")

    assert (job["workers"]["replicas"], job["workers"]["max"]) == (1, 1)


def test_the_local_strategy_overrides_the_workers_of_a_file_but_not_its_ps(elasticdl: Run, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("model: {definition: m.f}\nworkers: {min: 2, replicas: 4}\nps: {replicas: 1}\n")
    job = dry(elasticdl, tmp_path / "job.yaml", "--distribution_strategy=Local")

    assert {job["workers"][key] for key in ("min", "replicas", "max")} == {1}
    assert (job["strategy"], job["ps"]["replicas"]) == ("ParameterServerStrategy", 1)


def test_the_strategy_follows_from_the_ps_and_the_ps_from_the_strategy(elasticdl: Run) -> None:
    job = dry(elasticdl, "--model_def=m.f", "--distribution_strategy=ParameterServerStrategy")
    assert job["ps"]["replicas"] == 1

    job = dry(elasticdl, "--model_def=m.f", "--num_ps_pods=2", "--ps_memory=1.5Gi")
    assert (job["strategy"], job["ps"]["mode"]) == ("ParameterServerStrategy", "hybrid")

    job = dry(elasticdl, "--model_def=m.f")
    assert (job["strategy"], job["ps"]["replicas"]) == ("AllreduceStrategy", 0)


def test_a_file_for_another_command_is_refused_with_that_command(elasticdl: Run, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("kind: evaluation\nmodel: {definition: m.f}\n")

    assert "use `elasticdl evaluate`" in elasticdl("train", tmp_path / "job.yaml").stderr


def test_a_resumed_job_keeps_its_plan_whatever_the_workers_are(elasticdl: Run) -> None:
    spec = load.resolve_job(
        {"name": "a", "model": {"definition": "m.f"}, "workers": {"replicas": 4}, "plan": {"epochs": 9}}
    )
    jobs.job_directory("a").create(spec)

    job = dry(elasticdl, "--job_name=a", "--resume", "--num_workers=1")

    assert (job["workers"]["replicas"], job["workers"]["max"]) == (1, 4)
    assert (job["plan"]["global_batch_size"], job["plan"]["epochs"]) == (256, 9)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("training", "'a' is a job of `elasticdl train`; use `elasticdl train --resume --job_name=a`"),
        ("evaluation", "'a' is a job of `elasticdl evaluate`; start it again"),
    ],
)
def test_resuming_a_job_of_another_command_is_refused_with_that_command(
    elasticdl: Run, kind: str, message: str
) -> None:
    jobs.job_directory("a").create(load.resolve_job({"name": "a", "kind": kind, "model": {"definition": "m.f"}}))

    result = elasticdl("run", "--resume", "--job_name=a")

    assert (result.exit_code, result.stderr) == (2, f"error: --resume: {message}\n")


def test_a_job_on_a_cluster_is_not_confused_with_a_local_job_of_the_same_name(elasticdl: Run) -> None:
    spec = load.resolve_job(
        {"name": "a", "model": {"definition": "m.f"}, "workers": {"replicas": 4}, "plan": {"epochs": 9}}
    )
    jobs.job_directory("a").create(spec)

    job = dry(elasticdl, "--job_name=a", "--resume", "--checkpoint_dir=/c", "--image_name=i", "--model_def=m.g")

    assert (job["workers"]["replicas"], job["plan"]["epochs"]) == (2, 1)
    assert (job["model"]["zoo"], job["model"]["definition"]) == ("model_zoo", "m.g")


@pytest.mark.parametrize(
    ("workers", "expected"),
    [("1:4", {"replicas": 4, "min": 1, "max": 4}), ("3", {"replicas": 3, "min": 1, "max": 3})],
)
def test_a_script_runs_with_its_own_arguments_untouched(elasticdl: Run, workers: str, expected: dict[str, int]) -> None:
    result = elasticdl("run", "--workers", workers, "--dry-run", "train.py", "--epochs", "3", "--workers=9", "x_y")
    job = yaml.safe_load(result.stdout)

    assert job["script"]["arguments"] == ["--epochs", "3", "--workers=9", "x_y"]
    assert job["script"]["path"].endswith("/work/train.py")
    assert expected.items() <= job["workers"].items()


@pytest.mark.parametrize("workers", ["4:2", "two", "1:2:3", "0", ":", "-1"])
def test_wrong_numbers_of_workers_are_refused(elasticdl: Run, workers: str) -> None:
    result = elasticdl("run", f"--workers={workers}", "train.py")

    assert result.exit_code == 2
    assert "min 4 is above max 2" in result.stderr or "--workers: expected a number such as 2" in result.stderr


def test_a_job_file_is_read_once(elasticdl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: once\nmodel: {definition: m.f}\n")
    read: list[Path] = []
    read_text = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda path, *how, **more: read.append(path) or read_text(path, *how, **more)
    )

    job = dry(elasticdl, file, "--queue")

    assert job["name"] == "once"
    assert read.count(file) == 1
