"""Options of a job on Kubernetes: pairs, volumes, the file of --cluster_spec, and paths inside the image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.errors import SpecError
from elasticdl.jobs.options import parse_options
from elasticdl.spec.parsing import parse_pairs
from tests.unit.cli.conftest import Run

ORIGINAL = [
    "--image_name=elasticdl:ci",
    "--model_zoo=model_zoo",
    "--model_def=mnist_functional_api.mnist_functional_api.custom_model",
    "--training_data=/data/mnist/train",
    "--num_epochs=1",
    "--master_resource_request=cpu=1,memory=4096Mi,ephemeral-storage=1024Mi",
    "--worker_resource_request=cpu=1,memory=4096Mi,ephemeral-storage=1024Mi",
    "--ps_resource_request=cpu=1,memory=4096Mi,ephemeral-storage=1024Mi",
    "--minibatch_size=64",
    "--num_ps_pods=1",
    "--num_workers=2",
    "--job_name=test-train",
    "--distribution_strategy=ParameterServerStrategy",
    "--output=model_output",
]


def dry(elasticdl: Run, *words: object) -> dict[str, Any]:
    result = elasticdl("train", *words, "--dry-run")
    assert result.exit_code == 0, result.stderr
    document = yaml.safe_load(result.stdout)
    assert isinstance(document, dict)
    return document


def test_the_command_line_of_the_first_elasticdl_is_accepted(elasticdl: Run) -> None:
    job = dry(elasticdl, *ORIGINAL)

    requests = {"cpu": "1", "memory": "4096Mi", "ephemeral-storage": "1024Mi"}
    assert job["cluster"]["image"] == "elasticdl:ci"
    assert [job["cluster"][role]["requests"] for role in ("master", "worker", "ps")] == [requests] * 3
    assert (job["ps"]["replicas"], job["workers"]["replicas"], job["name"]) == (1, 2, "test-train")


def test_a_dry_run_prints_a_job_file_of_the_same_job(elasticdl: Run, tmp_path: Path) -> None:
    job = dry(elasticdl, *ORIGINAL, "--volume=claim_name=c,mount_path=/data", "--worker_pod_priority=0.5")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))

    assert dry(elasticdl, tmp_path / "job.yaml") == job


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu=1,memory=4Gi", {"cpu": "1", "memory": "4Gi"}),
        (" A = 1 , B = x y ", {"A": "1", "B": "x y"}),
        ("A=,B=c=d", {"A": "", "B": "c=d"}),
        ("A=1,A=2", {"A": "2"}),
    ],
)
def test_a_list_of_pairs_becomes_a_mapping(text: str, expected: dict[str, str]) -> None:
    assert parse_pairs(text, "--envs") == expected


@pytest.mark.parametrize("text", ["", "cpu", "=1", "cpu=1,,memory=2"])
def test_a_malformed_pair_is_refused_with_the_name_of_its_option(text: str) -> None:
    with pytest.raises(SpecError, match='--envs: expected "name=value,name=value"; received'):
        parse_pairs(text, "--envs")


def test_volumes_are_separated_by_semicolons() -> None:
    value = "claim_name=c,mount_path=/data;host_path=/mnt,mount_path=/m,read_only=true;"

    assert parse_options({"volume": value}) == {
        "volume": [
            {"claim_name": "c", "mount_path": "/data"},
            {"host_path": "/mnt", "mount_path": "/m", "read_only": "true"},
        ]
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--volume=claim_name=c"], "cluster.volumes.0.mount_path: is missing"),
        (["--volume=claim_name=c,mount_pat=/x"], "cluster.volumes.0.mount_pat: unknown key; did you mean 'mount_path'"),
        (["--volume=mount_path=/x"], "either claim_name=… or host_path=…"),
        (["--volume=/data"], '--volume: expected "name=value,name=value"'),
        (["--worker_resource_request=cpu=1,memory=4GB"], "write 500m, 4, 4G or 4Gi: 4Gi or 4G"),
        (["--worker_resource_request=cpu"], '--worker_resource_request: expected "name=value,name=value"'),
        (["--worker_pod_priority=2"], "cluster.worker.priority (--worker_pod_priority): expected high, low"),
        (["--envs=A-B=1"], "'A-B' is not a valid name of an environment variable"),
        (["--cluster_spec=none.yaml"], "none.yaml: no such file for --cluster_spec"),
    ],
)
def test_a_wrong_option_is_reported_in_one_message_with_its_path(
    elasticdl: Run, words: list[str], expected: str
) -> None:
    result = elasticdl("train", "--image_name=x", "--model_def=m.f", *words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr


def test_without_an_image_options_of_a_cluster_are_refused_with_the_one_that_is_missing(elasticdl: Run) -> None:
    result = elasticdl("train", "--model_def=m.f", "--namespace=training")

    assert "cluster.image (--image_name): is missing" in result.stderr


def test_the_cluster_spec_file_is_read_at_submission_and_stored_completely(elasticdl: Run) -> None:
    change = {"pod": {"metadata": {"annotations": {"team": "a"}}}, "service": {"metadata": {"labels": {"b": "c"}}}}
    Path("adjust.yaml").write_text(yaml.safe_dump(change))

    assert dry(elasticdl, *ORIGINAL, "--cluster_spec=adjust.yaml")["cluster"]["overrides"] == change


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n", "expected a mapping such as 'pod: {metadata: …}'; received list"),
        ("pods: {}\n", "'pods': expected a mapping under one of pod, master_pod, worker_pod, ps_pod, service"),
        ("pod: [\n", "adjust.yaml:2:1: not valid YAML"),
    ],
)
def test_a_wrong_cluster_spec_file_is_refused(elasticdl: Run, text: str, expected: str) -> None:
    Path("adjust.yaml").write_text(text)

    result = elasticdl("train", *ORIGINAL, "--cluster_spec=adjust.yaml")

    assert result.exit_code == 2
    assert expected in result.stderr


def test_relative_paths_of_a_job_on_a_cluster_are_left_unchanged(elasticdl: Run, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model: {definition: m.f, zoo: zoo}\ndata: {training: train.csv}\ncheckpoint: {directory: kept}\n")

    job = dry(elasticdl, file, "--image_name=x", "--output=~/out", "--validation_data=a.csv, b.csv")

    assert (job["model"]["zoo"], job["data"]["training"], job["checkpoint"]["directory"]) == (
        "zoo",
        "train.csv",
        "kept",
    )
    assert (job["output"], job["data"]["validation"]) == ("~/out", "a.csv, b.csv")


def test_an_image_in_the_file_also_leaves_paths_of_options_unchanged(elasticdl: Run, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("cluster: {image: x}\nmodel: {definition: m.f}\n")

    job = dry(elasticdl, tmp_path / "job.yaml", "--training_data=train.csv")

    assert (job["data"]["training"], job["model"]["zoo"]) == ("train.csv", "model_zoo")
