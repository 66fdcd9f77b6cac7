"""Submitting a job to a cluster: rendered, checked, and created completely or not at all."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.kube.errors import ApiUnavailable, InvalidObject
from elasticdl.kube.kinds import PERSISTENT_VOLUME_CLAIM, STATEFUL_SET
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

JOB_WORDS = ("train", "--image_name=zoo:1", "--model_def=m.m.f", "--training_data=/data", "--job_name=digits")


def submit(elasticdl: Run, *words: str) -> tuple[int, str, str]:
    result = elasticdl(*JOB_WORDS, "--detach", *words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_a_job_is_created_without_a_pod_then_its_other_objects_then_it_is_scaled_to_one(
    elasticdl: Run, cluster: FakeApi
) -> None:
    code, output, _ = submit(elasticdl)

    assert (code, cluster.calls[1], cluster.calls[-1]) == (
        0,
        ("create", "StatefulSet digits-master"),
        ("patch", "StatefulSet digits-master"),
    )
    assert "runs on by itself in namespace default of context fake" in output
    master = cluster.get(STATEFUL_SET, "digits-master")
    assert master is not None and master["spec"]["replicas"] == 1
    owned = [document for key, document in cluster.objects.items() if key[0] is not STATEFUL_SET and key[1]]
    assert len(owned) > 5
    assert {document["metadata"]["ownerReferences"][0]["uid"] for document in owned} == {master["metadata"]["uid"]}


def test_a_job_for_a_queue_is_scaled_to_one_because_the_queue_holds_its_pods(elasticdl: Run, cluster: FakeApi) -> None:
    submit(elasticdl, "--queue=night")

    master = cluster.get(STATEFUL_SET, "digits-master")
    assert master is not None and master["spec"]["replicas"] == 1
    assert master["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "night"


@pytest.mark.parametrize("failing", ["StatefulSet", "ConfigMap", "Secret", "RoleBinding", "NetworkPolicy"])
def test_created_objects_are_deleted_when_the_server_refuses_one(
    elasticdl: Run, cluster: FakeApi, failing: str
) -> None:
    def refuse(document: dict[str, Any]) -> None:
        if document["kind"] == failing:
            raise InvalidObject(f"no {failing} today")

    cluster.before_create = refuse

    code, _, problem = submit(elasticdl)

    assert (code, cluster.object_names) == (2, [])
    assert f"no {failing} today" in problem


def test_an_object_that_may_have_been_created_is_deleted_too(elasticdl: Run, cluster: FakeApi) -> None:
    def cut(document: dict[str, Any]) -> None:
        if document["kind"] == "Secret":
            raise ApiUnavailable("cut off")

    cluster.before_create = cut

    assert submit(elasticdl)[0] == 1
    assert ("delete", "Secret digits-secret") in cluster.calls


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_submission_leaves_no_objects_behind(elasticdl: Run, cluster: FakeApi, number: int) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background have none

    def interrupt(document: dict[str, Any]) -> None:
        if document["kind"] == "Service":
            signal.raise_signal(number)

    cluster.before_create = interrupt

    code, _, _ = submit(elasticdl)

    assert (code, cluster.object_names) == (130, [])
    assert ("create", "Service digits-master") in cluster.calls
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def test_the_objects_are_shown_without_a_cluster_and_without_secrets(elasticdl: Run) -> None:
    result = elasticdl(*JOB_WORDS, "--num_ps_pods=1", "--yaml")

    documents = list(yaml.safe_load_all(result.stdout))
    assert [document["kind"] for document in documents][:3] == ["StatefulSet", "ConfigMap", "Secret"]
    assert set(documents[2]["stringData"].values()) == {"…"}
    assert [document["metadata"]["name"] for document in documents if document["kind"] == "Pod"] == [
        "digits-worker-0",
        "digits-ps-0",
    ]
    assert "PRIVATE KEY" not in result.stdout


def test_a_server_side_dry_run_checks_every_object(elasticdl: Run, cluster: FakeApi) -> None:
    def refuse(document: dict[str, Any]) -> None:
        if document["kind"] == "Service":
            raise InvalidObject("ports: nonsense")

    good = elasticdl(*JOB_WORDS, "--dry-run=server")
    cluster.before_create = refuse
    bad = elasticdl(*JOB_WORDS, "--dry-run=server")

    assert good.exit_code == 0 and all(line.endswith(": ok") for line in good.stdout.splitlines())
    assert bad.exit_code == 1 and "Service digits-master: ports: nonsense" in bad.stdout
    assert cluster.object_names == []


@pytest.mark.parametrize("words", [["--dry-run"], ["--dry_run"], ["--dry-run=client"]])
def test_a_plain_dry_run_prints_the_job(elasticdl: Run, words: list[str]) -> None:
    assert yaml.safe_load(elasticdl(*JOB_WORDS, *words).stdout)["cluster"]["image"] == "zoo:1"


def test_an_unknown_value_of_dry_run_is_refused(elasticdl: Run) -> None:
    result = elasticdl(*JOB_WORDS, "--dry-run=sever")

    assert result.exit_code == 2
    assert "'--dry-run': 'sever' is not one of 'client', 'server'" in result.stderr


def test_a_dry_run_option_of_the_script_is_passed_through(elasticdl: Run) -> None:
    words = ("run", "--image_name=i", "--dry-run", "train.py", "--dry-run=mine", "--dry-run")

    assert yaml.safe_load(elasticdl(*words).stdout)["script"]["arguments"] == ["--dry-run=mine", "--dry-run"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--volume=claim_name=data,mount_path=/data", "--checkpoint_dir=/data/c"], ""),
        (["--checkpoint_dir=s3://bucket/c"], ""),
        ([], "note: checkpoints are deleted with the pods"),
        (["--volume=claim_name=data,mount_path=/data", "--checkpoint_dir=/database"], "note: checkpoints are deleted"),
        (
            ["--volume=claim_name=d,mount_path=/d,read_only=true", "--checkpoint_dir=s3://b/c", "--output=/d/m"],
            "note: --output=/d/m is inside the pod that writes it and is deleted with it",
        ),
        (["--volume=claim_name=d,mount_path=/d", "--checkpoint_dir=/d/c", "--output=/d/m"], ""),
    ],
)
def test_paths_that_are_deleted_with_the_pods_are_reported(
    elasticdl: Run, cluster: FakeApi, words: list[str], expected: str
) -> None:
    for name in ("d", "data"):
        cluster.create({"apiVersion": "v1", "kind": PERSISTENT_VOLUME_CLAIM.kind, "metadata": {"name": name}})

    code, _, errors = submit(elasticdl, *words)

    assert code == 0
    assert errors.startswith(expected) and bool(errors) is bool(expected)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "note: checkpoints that the script writes are deleted with its pod"),
        (["--volume=claim_name=data,mount_path=/data"], ""),
    ],
)
def test_an_unmodified_script_needs_a_volume(elasticdl: Run, cluster: FakeApi, words: list[str], expected: str) -> None:
    cluster.create({"apiVersion": "v1", "kind": PERSISTENT_VOLUME_CLAIM.kind, "metadata": {"name": "data"}})

    done = elasticdl("run", "--compat=ddp", "--image_name=i", "--detach", *words, "train.py")

    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith(expected) and bool(done.stderr) is bool(expected)


def test_an_unmodified_script_is_resumed_by_starting_it_again(elasticdl: Run, cluster: FakeApi) -> None:
    done = elasticdl("run", "--compat=ddp", "--image_name=i", "--resume", "--job_name=ddp", "train.py")

    assert (done.exit_code, cluster.object_names) == (2, [])
    assert "submit it again without --resume" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--namespace=defualt"], "there is no namespace 'defualt' in context 'fake'; did you mean 'default'?"),
        (["--namespace=zzz"], "create it with `kubectl create namespace zzz`"),
        (["--volume=claim_name=data,mount_path=/d"], "no PersistentVolumeClaim 'data' in namespace default"),
        (["--worker_pod_priority=high"], "no PriorityClass 'elasticdl-high'; there is none; `helm install"),
        (["--worker_pod_priority=0.5"], "no PriorityClass 'elasticdl-high'"),
        (["--image_pull_secrets=registry"], "no Secret 'registry' in namespace default"),
        (["--worker_resource_request=memory=4GB"], "'4GB' is not a Kubernetes quantity; write 500m, 4, 4G or 4Gi: 4Gi"),
        (["--job_name=Digits_1"], "use 1 to 63 of a-z, 0-9 and '-'"),
        ([f"--job_name={'d' * 60}"], "use at most 45 letters on Kubernetes"),
        (["--tls_cert=a", "--tls_key=b", "--tls_ca=c"], "each job gets certificates of its own"),
        (["--resume"], "--resume: on Kubernetes it needs --checkpoint_dir, on a --volume or as a URL"),
    ],
)
def test_a_wrong_job_is_refused_with_the_fix_and_nothing_is_created(
    elasticdl: Run, cluster: FakeApi, words: list[str], expected: str
) -> None:
    code, _, problem = submit(elasticdl, *words)

    assert (code, cluster.object_names) == (2, [])
    assert expected in problem


def test_a_job_that_exists_already_is_refused(elasticdl: Run, cluster: FakeApi) -> None:
    submit(elasticdl)
    before = cluster.object_names

    code, _, problem = submit(elasticdl)

    assert (code, cluster.object_names) == (2, before)
    assert "job 'digits' already exists in namespace default; see it with `elasticdl status digits`" in problem


def test_missing_rights_are_named_together_with_the_manifest_that_grants_them(elasticdl: Run, cluster: FakeApi) -> None:
    cluster.forbidden = {
        ("create", "secrets"),
        ("delete", "secrets"),
        ("create", "pods"),
        ("create", "pods/portforward"),
    }

    code, _, problem = submit(elasticdl)

    assert (code, cluster.object_names) == (1, [])
    assert "you may not create and delete secrets; create pods/portforward; create pods in namespace default" in problem
    assert "-f deploy/manifests/submitter.yaml" in problem


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train", "--on=kubernetes"], "--on kubernetes: which image? Name the one that holds the model"),
        (["train", "--on=local", "--image_name=x"], "--image_name: for jobs on Kubernetes; leave out --on local"),
        (["train", "--on=moon"], "'moon' is not one of 'local', 'kubernetes'"),
        (["train", "--yaml"], "are for jobs on Kubernetes; give --image_name, too"),
    ],
)
def test_options_that_contradict_the_target_are_refused(elasticdl: Run, words: list[str], expected: str) -> None:
    result = elasticdl(*words, "--model_def=m.f", "--training_data=/data")

    assert result.exit_code == 2
    assert expected in result.stderr


def test_a_job_file_for_a_cluster_can_run_on_this_machine(elasticdl: Run, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: digits\nmodel: {definition: m.f}\ndata: {training: d.csv}\ncluster: {image: i}\n")

    here, there = (elasticdl("train", file, *words, "--dry-run").stdout for words in (["--on=local"], []))

    assert "cluster" not in yaml.safe_load(here) and yaml.safe_load(here)["data"]["training"] == str(tmp_path / "d.csv")
    assert yaml.safe_load(there)["data"]["training"] == "d.csv"
