"""The findings of the doctor, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import elasticdl as package
from elasticdl.extras import install_command
from elasticdl.jobs.kubernetes import rights
from elasticdl.kube.errors import ApiUnavailable
from elasticdl.kube.kinds import RESOURCE_QUOTA
from elasticdl.launcher.kubernetes import access
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

SUBMITTER = Path(__file__).parents[4] / rights.SUBMITTER_MANIFEST


def examine(elasticdl: Run, *words: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    result = elasticdl("doctor", "--json", *words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    findings: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(result.stdout):
        findings.setdefault(finding["subject"], []).append(finding)
    return result.exit_code, findings


def definition(version: str) -> dict[str, Any]:
    metadata = {"name": "elasticjobs.elasticdl.org", "labels": {"elasticdl.org/version": version}}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata}


def operator(phase: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "elasticdl", "app.kubernetes.io/component": "operator"}
    metadata = {"name": "operator-x", "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": phase}}


def test_a_cluster_without_the_operator_is_good_enough(elasticdl: Run, cluster: FakeApi) -> None:
    code, findings = examine(elasticdl)

    assert code == 0
    assert findings["API server"][0]["message"] == "https://fake has version v1.34.0"
    assert findings["rights to submit"][0]["state"] == "ok"
    assert (findings["ElasticJob"][0]["state"], findings["operator"][0]["state"]) == ("note", "note")
    assert "only needed for `kubectl apply`" in findings["ElasticJob"][0]["message"]


def test_every_finding_and_every_fix_has_its_own_line(elasticdl: Run, cluster: FakeApi) -> None:
    cluster.forbidden = {("delete", "secrets")}

    lines = elasticdl("doctor").stdout.splitlines()

    assert "not ok  rights to submit: you may not delete secrets in default" in lines
    index = lines.index("not ok  rights to submit: you may not delete secrets in default")
    assert "fix: an administrator of the cluster can grant this with" in lines[index + 1]
    assert "deploy/manifests/submitter.yaml" in lines[index + 1]


@pytest.mark.parametrize("lacking", [("create", "statefulsets"), ("get", "pods/log"), ("create", "pods/portforward")])
def test_a_missing_right_is_named(elasticdl: Run, cluster: FakeApi, lacking: tuple[str, str]) -> None:
    cluster.forbidden = {lacking}

    code, findings = examine(elasticdl)

    missing = [
        finding["message"]
        for of_subject in findings.values()
        for finding in of_subject
        if finding["state"] == "missing"
    ]
    assert code == 1
    assert missing == [f"you may not {lacking[0]} {lacking[1]} in default"]


@pytest.mark.parametrize(
    ("version", "phase", "states"),
    [
        (package.__version__, "Running", ("ok", "ok")),
        (package.__version__, "Pending", ("ok", "missing")),
        ("9.9.9", "Running", ("missing", "ok")),
    ],
)
def test_the_versions_of_the_operator_and_its_resource_must_match(
    elasticdl: Run, cluster: FakeApi, version: str, phase: str, states: tuple[str, str]
) -> None:
    cluster.create(definition(version))
    cluster.create(operator(phase))

    code, findings = examine(elasticdl)

    assert (findings["ElasticJob"][0]["state"], findings["operator"][0]["state"]) == states
    assert code == int("missing" in states)
    if version != package.__version__:
        assert "has version 9.9.9, this is elasticdl" in findings["ElasticJob"][0]["message"]
        assert "kubectl apply" in findings["ElasticJob"][0]["fix"]


@pytest.mark.parametrize(
    ("hard", "used", "expected"),
    [
        ({"requests.cpu": "4"}, {"requests.cpu": "3"}, "ok"),
        ({"requests.cpu": "4"}, {"requests.cpu": "3500m"}, "missing"),
        ({"memory": "1Gi"}, {}, "missing"),
        ({"pods": "5"}, {"pods": "5"}, "missing"),
        ({"services": "0"}, {}, "ok"),
    ],
)
def test_a_quota_that_has_no_room_for_a_worker_is_reported(
    elasticdl: Run, cluster: FakeApi, hard: dict[str, str], used: dict[str, str], expected: str
) -> None:
    quota = {"apiVersion": "v1", "kind": RESOURCE_QUOTA.kind, "metadata": {"name": "team"}, "spec": {"hard": hard}}
    cluster.create(quota | {"status": {"hard": hard, "used": used}})

    code, findings = examine(elasticdl)

    assert (findings["quota"][0]["state"], code) == (expected, int(expected == "missing"))


def test_without_a_cluster_this_machine_passes(elasticdl: Run) -> None:
    code, findings = examine(elasticdl)

    assert code == 0
    assert (findings["this machine"][0]["state"], findings["Kubernetes"][0]["state"]) == ("ok", "note")
    assert findings["Kubernetes"][0]["message"] == "none is configured; jobs run on this machine"
    assert "set KUBECONFIG" in findings["Kubernetes"][0]["fix"]


def test_without_a_cluster_and_a_kubernetes_client_this_machine_passes(
    elasticdl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elasticdl.jobs.diagnosis.installation.find_spec", lambda name: None)

    code, findings = examine(elasticdl)

    assert code == 0
    assert install_command("kubernetes") in findings["Kubernetes"][0]["fix"]


def test_kubernetes_without_a_cluster_is_reported_as_missing(elasticdl: Run) -> None:
    code, findings = examine(elasticdl, "--on", "kubernetes")

    assert code == 1
    assert findings["kubeconfig"][0]["state"] == "missing"
    assert "no Kubernetes cluster to connect to" in findings["kubeconfig"][0]["message"]
    assert "API server" not in findings


def test_an_api_server_that_is_down_is_reported(
    elasticdl: Run, cluster: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> str:
        raise ApiUnavailable("the API server https://fake does not answer")

    monkeypatch.setattr(cluster, "version", silent)

    code, findings = examine(elasticdl)

    assert (code, findings["API server"][0]["state"]) == (1, "missing")
    assert "namespace" not in findings


def test_a_missing_namespace_is_reported_with_the_closest_match(elasticdl: Run, cluster: FakeApi) -> None:
    code, findings = examine(elasticdl, "--namespace=defualt")

    assert code == 1
    assert "did you mean 'default'?" in findings["namespace"][0]["message"]


def test_a_check_without_read_permission_is_a_note(elasticdl: Run, cluster: FakeApi) -> None:
    cluster.forbidden = {("get", "customresourcedefinitions"), ("list", "storageclasses")}

    code, findings = examine(elasticdl)

    assert code == 0
    assert findings["definition"][0]["state"] == findings["storage"][0]["state"] == "note"


def test_checking_only_this_machine_needs_no_cluster(elasticdl: Run) -> None:
    code, findings = examine(elasticdl, "--on=local")

    assert code == 0
    assert set(findings) == {"this machine", "native core", "torch", "tensorflow", "pyarrow", "matplotlib"}


@pytest.mark.skipif(not SUBMITTER.exists(), reason="deploy/manifests is not there")
def test_the_suggested_manifest_grants_every_needed_right() -> None:
    granted = {
        (verb, group, resource)
        for document in yaml.safe_load_all(SUBMITTER.read_text())
        if document["metadata"]["name"] == "elasticdl-submitter"
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    master_rules = [
        {"apiGroups": [group], "resources": [resources], "verbs": verbs}
        for group, resources, verbs in access.MASTER_RULES
    ]
    needed = [*rights.SUBMIT_RIGHTS, *rights.VIEW_RIGHTS, *rights.rights_of_role({"rules": master_rules})]

    missing = [str(right) for right in needed if (right.verb, right.kind.group, str(right).split()[1]) not in granted]

    assert missing == []
