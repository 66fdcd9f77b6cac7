"""The command line against a real API server: which objects it creates, deletes and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from google.protobuf.json_format import MessageToJson

import elasticdl
from elasticdl.cli.main import cli
from elasticdl.kube.api import Api
from elasticdl.kube.kinds import (
    CONFIG_MAP,
    CRD,
    ELASTIC_JOB,
    NETWORK_POLICY,
    PRIORITY_CLASS,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
)
from elasticdl.rpc import elasticdl_pb2 as pb
from tests.integration.kube import elastic_job
from tests.integration.kube.apiserver import NOBODY, ApiServer, free_port
from tests.integration.kube.conftest import Connect

JOB_KINDS = (STATEFUL_SET, CONFIG_MAP, SECRET, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, NETWORK_POLICY)
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `elasticdl …` with the kubeconfig of the test."""
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")

    def invoke(*words: str) -> Result:
        result = CliRunner().invoke(cli, list(words))
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


def train_command(name: str = "digits", *options: str) -> list[str]:
    words = ["train", "--image_name=zoo:1", "--model_def=m.m.f", "--training_data=/data", f"--job_name={name}"]
    return [*words, *options]


def existing_objects(api: Api) -> list[str]:
    """The objects in the namespace, without those that every namespace has."""
    names = [f"{kind.kind} {document['metadata']['name']}" for kind in JOB_KINDS for document in api.list(kind)[0]]
    return [name for name in names if name not in ("ConfigMap kube-root-ca.crt", "ServiceAccount default")]


def test_a_submitted_job_has_all_its_objects(run: Run, api: Api, namespace: str) -> None:
    result = run(*train_command("digits", "--num_ps_pods=1", "--detach"))

    assert result.exit_code == 0, result.stderr
    assert f"job digits runs on by itself in namespace {namespace} of context here" in result.stdout
    assert "checkpoints are deleted with the pods" in result.stderr
    master = api.get(STATEFUL_SET, "digits-master")
    assert master is not None and master["spec"]["replicas"] == 1
    for kind in JOB_KINDS[1:]:
        for document in api.list(kind, labels="elasticdl.org/job=digits")[0]:
            assert document["metadata"]["ownerReferences"][0]["uid"] == master["metadata"]["uid"]
    assert len(existing_objects(api)) >= 9


def test_a_submission_that_fails_leaves_no_objects(run: Run, api: Api, namespace: str) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "digits-master", "namespace": namespace}}
    api.create(service | {"spec": {"ports": [{"port": 1}]}})

    result = run(*train_command("digits", "--detach"))

    assert result.exit_code == 1
    assert "already exists" in result.stderr
    assert existing_objects(api) == ["Service digits-master"]


def test_the_server_accepts_every_printed_object(run: Run, api: Api, namespace: str) -> None:
    results = run(*train_command("digits", "--dry-run=server")).stdout.splitlines()
    printed = yaml.safe_load_all(run(*train_command("digits", "--yaml")).stdout)

    expected = [
        f"{document['kind']} {document['metadata']['name']}: ok" for document in printed if document["kind"] != "Pod"
    ]
    assert results == expected
    assert existing_objects(api) == []


def test_an_object_that_the_server_refuses_is_reported_with_its_message(
    run: Run, api: Api, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "adjust.yaml").write_text("service: {spec: {type: Nonsense}}\n")

    result = run(*train_command("digits", f"--cluster_spec={tmp_path / 'adjust.yaml'}", "--dry-run=server"))

    assert result.exit_code == 1
    assert 'Unsupported value: "Nonsense"' in result.stdout


def test_a_job_is_submitted_shown_and_deleted(run: Run, api: Api, namespace: str) -> None:
    run(*train_command("digits", "--detach"))

    assert "already exists in namespace" in run(*train_command("digits", "--detach")).stderr
    (listed,) = json.loads(run("jobs", "--json").stdout)
    assert (listed["name"], listed["phase"], listed["where"]) == ("digits", "pending", f"here/{namespace}")
    assert json.loads(run("status", "digits", "--json").stdout)["reason"] == "its master has no pod yet"
    assert "did you mean 'digits'?" in run("status", "digist").stderr

    status = pb.JobStatus(name="digits", kind="training", phase="succeeded", records=64, started_at=1.0, now=2.0)
    labels = {"app.kubernetes.io/name": "elasticdl", "elasticdl.org/job": "digits", "elasticdl.org/role": "status"}
    metadata = {"name": "digits-status", "namespace": namespace, "labels": labels}
    data = {"status.json": MessageToJson(status), "result.json": '{"phase": "succeeded", "exit_code": 0}'}
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    assert json.loads(run("status", "digits", "--json").stdout)["records"] == 64
    assert "job 'digits' is over (succeeded)" in run("stop", "digits").stderr
    assert "digits: deleted; its pods end" in run("stop", "digits", "--delete").stdout
    assert api.get(STATEFUL_SET, "digits-master") is None


def test_a_missing_kubeconfig_is_an_error_with_the_fix(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    result = run(*train_command())

    assert result.exit_code == 2
    assert "no Kubernetes cluster to connect to" in result.stderr
    assert "set KUBECONFIG" in result.stderr


def test_an_unknown_context_is_an_error_with_a_suggestion(run: Run, api: Api) -> None:
    result = run(*train_command("digits", "--context=hre"))

    assert result.exit_code == 2
    assert "there is no context 'hre' in the kubeconfig; did you mean 'here'? There are: here" in result.stderr


def test_a_server_that_is_down_is_reported_by_each_verb(run: Run, server: ApiServer, connect: Connect) -> None:
    connect(port=free_port())

    submitted, listed, diagnosed = run(*train_command()), run("jobs"), run("doctor")

    assert submitted.exit_code == 1 and "does not answer" in submitted.stderr
    assert listed.exit_code == 0 and "note: without the jobs of the cluster" in listed.stderr
    assert diagnosed.exit_code == 1 and "not ok  API server" in diagnosed.stdout


def test_a_user_without_rights_is_told_which_are_missing(run: Run, api: Api, connect: Connect, namespace: str) -> None:
    connect(NOBODY, namespace=namespace)

    submitted, diagnosed = run(*train_command()), run("doctor")

    assert submitted.exit_code == 1
    assert "you may not create, delete, patch, get and list statefulsets; " in submitted.stderr
    assert "-f deploy/manifests/submitter.yaml" in submitted.stderr
    assert f"not ok  rights to submit: you may not create secrets in {namespace}" in diagnosed.stdout
    assert existing_objects(api) == []


def test_the_rights_that_doctor_requires_are_enough(run: Run, api: Api, connect: Connect, namespace: str) -> None:
    """A user with exactly these rights can submit, inspect and delete jobs."""
    from elasticdl.jobs.kubernetes import rights
    from elasticdl.launcher.kubernetes import access

    master_rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs}
        for group, resource, verbs in access.ALL_MASTER_RULES
    ]
    required = [*rights.SUBMIT_RIGHTS, *rights.VIEW_RIGHTS, *rights.rights_of_role({"rules": master_rules})]
    rules = [
        {"apiGroups": [right.kind.group], "resources": ["/".join(filter(None, (right.kind.plural, right.subresource)))]}
        | {"verbs": [right.verb]}
        for right in required
    ]
    metadata = {"name": "submitter", "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    api.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules})
    binding: dict[str, Any] = {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": metadata}
    binding["roleRef"] = {"apiGroup": rbac, "kind": "Role", "name": "submitter"}
    binding["subjects"] = [{"kind": "User", "name": NOBODY, "apiGroup": rbac}]
    api.create(binding)
    connect(NOBODY, namespace=namespace)

    checked = run(*train_command("digits", "--dry-run=server"))
    result = run(*train_command("digits", "--detach"))

    assert checked.exit_code == 0, checked.stdout
    assert "RoleBinding digits-master: not checked, because its Role does not exist yet" in checked.stdout
    assert result.exit_code == 0, result.stderr
    assert json.loads(run("status", "digits", "--json").stdout)["phase"] == "pending"
    assert run("doctor").exit_code == 0
    assert run("stop", "digits", "--delete").exit_code == 0


def test_an_unknown_namespace_is_an_error_with_a_suggestion(run: Run, api: Api, namespace: str) -> None:
    result = run(*train_command("digits", f"--namespace={namespace[:-1]}x"))

    assert result.exit_code == 2
    assert "there is no namespace" in result.stderr and "did you mean" in result.stderr


def test_the_priority_class_of_a_job_must_exist(run: Run, api: Api, namespace: str) -> None:
    assert "no PriorityClass 'urgent'" in run(*train_command("digits", "--worker_pod_priority=urgent")).stderr
    priority_class = {
        "apiVersion": PRIORITY_CLASS.api_version,
        "kind": PRIORITY_CLASS.kind,
        "metadata": {"name": "mine"},
    }
    api.create(priority_class | {"value": 10})

    assert run(*train_command("digits", "--worker_pod_priority=mine", "--detach")).exit_code == 0


def test_doctor_reports_a_definition_of_another_version(run: Run, api: Api) -> None:
    labels = {"elasticdl.org/version": "0.0.9"}
    names = {"plural": "elasticjobs", "kind": "ElasticJob"}
    served = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    document: dict[str, Any] = {"apiVersion": CRD.api_version, "kind": CRD.kind}
    document["metadata"] = {"name": "elasticjobs.elasticdl.org", "labels": labels}
    document["spec"] = {"group": "elasticdl.org", "names": names, "scope": "Namespaced", "versions": [served]}
    if (before := api.get(CRD, "elasticjobs.elasticdl.org")) is not None:
        labels_before = before["metadata"].get("labels", {})
        api.patch(CRD, "elasticjobs.elasticdl.org", {"metadata": {"labels": labels}})
    else:
        api.create(document)
    try:
        result = run("doctor")
    finally:
        if before is None:
            api.delete(CRD, "elasticjobs.elasticdl.org")
        else:
            api.patch(CRD, "elasticjobs.elasticdl.org", {"metadata": {"labels": labels_before}})

    assert result.exit_code == 1
    assert f"has version 0.0.9, this is elasticdl {elasticdl.__version__}" in result.stdout
    assert "fix: use a clone or wheel of elasticdl 0.0.9, or kubectl apply" in result.stdout


def test_an_elastic_job_without_a_master_is_listed_scaled_and_deleted(run: Run, api: Api, namespace: str) -> None:
    elastic_job.install(api)
    api.create(elastic_job.resource("waiting", namespace))

    (listed,) = json.loads(run("jobs", "--on=kubernetes", "--json").stdout)
    assert (listed["name"], listed["phase"]) == ("waiting", "pending")
    assert "no operator has processed it yet" in run("status", "waiting").stdout
    assert "has no master yet" in run("logs", "waiting").stderr

    assert (
        run("scale", "waiting", "--workers=6", "--ps=2").stdout
        == "waiting: takes effect when it begins; it has no master yet\n"
    )
    resource = api.get(ELASTIC_JOB, "waiting")
    assert resource is not None
    assert (resource["spec"]["workers"]["replicas"], resource["spec"]["ps"]["replicas"]) == (6, 2)
    refused = run("scale", "waiting", "--workers=9")
    assert refused.exit_code == 2 and "replicas is outside min .. max" in refused.stderr

    assert run("stop", "waiting", "--delete").stdout == "waiting: deleted\n"
    assert api.get(ELASTIC_JOB, "waiting") is None
