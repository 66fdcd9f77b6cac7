"""The command line against a real API server: what it makes, what it takes back, what it refuses."""

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

MADE = (STATEFUL_SET, CONFIG_MAP, SECRET, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, NETWORK_POLICY)
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`elasticdl …` with the kubeconfig of the test."""
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")

    def invoke(*words: str) -> Result:
        result = CliRunner().invoke(cli, list(words))
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


def train(name: str = "digits", *more: str) -> list[str]:
    words = ["train", "--image_name=zoo:1", "--model_def=m.m.f", "--training_data=/data", f"--job_name={name}"]
    return [*words, *more]


def kept(api: Api) -> list[str]:
    """What is in the namespace, but for what every namespace has."""
    found = [f"{kind.kind} {one['metadata']['name']}" for kind in MADE for one in api.list(kind)[0]]
    return [one for one in found if one not in ("ConfigMap kube-root-ca.crt", "ServiceAccount default")]


def test_a_job_is_made_whole_and_let_go(run: Run, api: Api, namespace: str) -> None:
    result = run(*train("digits", "--num_ps_pods=1", "--detach"))

    assert result.exit_code == 0, result.stderr
    assert f"job digits runs on by itself in namespace {namespace} of context here" in result.stdout
    assert "checkpoints are deleted with the pods" in result.stderr
    job = api.get(STATEFUL_SET, "digits-master")
    assert job is not None and job["spec"]["replicas"] == 1
    for kind in MADE[1:]:
        for one in api.list(kind, labels="elasticdl.org/job=digits")[0]:
            assert one["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert len(kept(api)) >= 9


def test_what_the_server_refuses_midway_leaves_nothing(run: Run, api: Api, namespace: str) -> None:
    taken = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "digits-master", "namespace": namespace}}
    api.create(taken | {"spec": {"ports": [{"port": 1}]}})

    result = run(*train("digits", "--detach"))

    assert result.exit_code == 1
    assert "already exists" in result.stderr
    assert kept(api) == ["Service digits-master"]


def test_every_object_that_is_shown_is_one_the_server_takes(run: Run, api: Api, namespace: str) -> None:
    judged = run(*train("digits", "--dry-run=server")).stdout.splitlines()
    shown = [one for one in yaml.safe_load_all(run(*train("digits", "--yaml")).stdout) if one["kind"] != "Pod"]

    assert judged == [f"{one['kind']} {one['metadata']['name']}: ok" for one in shown]
    assert kept(api) == []


def test_the_servers_own_words_are_told(run: Run, api: Api, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "adjust.yaml").write_text("service: {spec: {type: Nonsense}}\n")

    result = run(*train("digits", f"--cluster_spec={tmp_path / 'adjust.yaml'}", "--dry-run=server"))

    assert result.exit_code == 1
    assert 'Unsupported value: "Nonsense"' in result.stdout


def test_a_job_goes_through_its_life(run: Run, api: Api, namespace: str) -> None:
    run(*train("digits", "--detach"))

    assert "already exists in namespace" in run(*train("digits", "--detach")).stderr
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


def test_no_kubeconfig(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    result = run(*train())

    assert result.exit_code == 2
    assert "no Kubernetes cluster to connect to" in result.stderr
    assert "set KUBECONFIG" in result.stderr


def test_a_wrong_context(run: Run, api: Api) -> None:
    result = run(*train("digits", "--context=hre"))

    assert result.exit_code == 2
    assert "there is no context 'hre' in the kubeconfig; did you mean 'here'? There are: here" in result.stderr


def test_a_server_that_is_down(run: Run, server: ApiServer, connect: Connect) -> None:
    connect(port=free_port())

    submitted, listed, examined = run(*train()), run("jobs"), run("doctor")

    assert submitted.exit_code == 1 and "does not answer" in submitted.stderr
    assert listed.exit_code == 0 and "note: without the jobs of the cluster" in listed.stderr
    assert examined.exit_code == 1 and "not ok  API server" in examined.stdout


def test_someone_without_rights(run: Run, api: Api, connect: Connect, namespace: str) -> None:
    connect(NOBODY, namespace=namespace)

    submitted, examined = run(*train()), run("doctor")

    assert submitted.exit_code == 1
    assert "you may not create, delete, patch, get and list statefulsets; " in submitted.stderr
    assert "-f deploy/manifests/submitter.yaml" in submitted.stderr
    assert f"not ok  rights to submit: you may not create secrets in {namespace}" in examined.stdout
    assert kept(api) == []


def test_the_rights_that_are_asked_for_are_enough(run: Run, api: Api, connect: Connect, namespace: str) -> None:
    """Whoever has exactly what the doctor names can submit, look and delete."""
    from elasticdl.jobs.kubernetes import rights
    from elasticdl.launcher.kubernetes import access

    handed = [
        {"apiGroups": [group], "resources": [what], "verbs": verbs} for group, what, verbs in access.ALL_MASTER_RULES
    ]
    needed = [*rights.SUBMIT_RIGHTS, *rights.VIEW_RIGHTS, *rights.rights_of_role({"rules": handed})]
    rules = [
        {"apiGroups": [one.kind.group], "resources": ["/".join(filter(None, (one.kind.plural, one.subresource)))]}
        | {"verbs": [one.verb]}
        for one in needed
    ]
    metadata = {"name": "submitter", "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    api.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules})
    binding: dict[str, Any] = {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": metadata}
    binding["roleRef"] = {"apiGroup": rbac, "kind": "Role", "name": "submitter"}
    binding["subjects"] = [{"kind": "User", "name": NOBODY, "apiGroup": rbac}]
    api.create(binding)
    connect(NOBODY, namespace=namespace)

    judged = run(*train("digits", "--dry-run=server"))
    result = run(*train("digits", "--detach"))

    assert judged.exit_code == 0, judged.stdout
    assert "RoleBinding digits-master: not checked, because its Role does not exist yet" in judged.stdout
    assert result.exit_code == 0, result.stderr
    assert json.loads(run("status", "digits", "--json").stdout)["phase"] == "pending"
    assert run("doctor").exit_code == 0
    assert run("stop", "digits", "--delete").exit_code == 0


def test_a_missing_namespace(run: Run, api: Api, namespace: str) -> None:
    result = run(*train("digits", f"--namespace={namespace[:-1]}x"))

    assert result.exit_code == 2
    assert "there is no namespace" in result.stderr and "did you mean" in result.stderr


def test_priority_classes_that_are_asked_for_must_exist(run: Run, api: Api, namespace: str) -> None:
    assert "no PriorityClass 'urgent'" in run(*train("digits", "--worker_pod_priority=urgent")).stderr
    known = {"apiVersion": PRIORITY_CLASS.api_version, "kind": PRIORITY_CLASS.kind, "metadata": {"name": "mine"}}
    api.create(known | {"value": 10})

    assert run(*train("digits", "--worker_pod_priority=mine", "--detach")).exit_code == 0


def test_a_definition_of_another_version(run: Run, api: Api) -> None:
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


def test_an_elastic_job_that_nobody_has_begun_is_listed_scaled_and_deleted(run: Run, api: Api, namespace: str) -> None:
    elastic_job.install(api)
    api.create(elastic_job.resource("asked", namespace))

    (listed,) = json.loads(run("jobs", "--on=kubernetes", "--json").stdout)
    assert (listed["name"], listed["phase"]) == ("asked", "pending")
    assert "no operator has processed it yet" in run("status", "asked").stdout
    assert "has no master yet" in run("logs", "asked").stderr

    assert (
        run("scale", "asked", "--workers=6", "--ps=2").stdout
        == "asked: takes effect when it begins; it has no master yet\n"
    )
    found = api.get(ELASTIC_JOB, "asked")
    assert found is not None
    assert (found["spec"]["workers"]["replicas"], found["spec"]["ps"]["replicas"]) == (6, 2)
    refused = run("scale", "asked", "--workers=9")
    assert refused.exit_code == 2 and "replicas is outside min .. max" in refused.stderr

    assert run("stop", "asked", "--delete").stdout == "asked: deleted\n"
    assert api.get(ELASTIC_JOB, "asked") is None
