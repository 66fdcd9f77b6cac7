"""Installations on a cluster, and findings of `elasticdl doctor`: before, after, with a quota, with too few rights."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster import image, operator
from tests.cluster.kube import ROOT, Kube

REASON = operator.why_not()
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NAMESPACE = "install-suite"
PLAIN = "elasticdl"  # the namespace of the plain manifests


@pytest.fixture(scope="module")
def team(kube: Kube) -> Iterator[Kube]:
    kube.kubectl("create", "namespace", NAMESPACE, check=False)
    yield kube
    kube.kubectl("delete", "namespace", NAMESPACE, "--timeout=100s")


def doctor(kube: Kube, *words: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """Returns the exit code and the findings by subject."""
    done = kube.elasticdl("doctor", "--json", *words, check=False)
    assert done.returncode in (0, 1), done.stderr
    findings: dict[str, list[dict[str, str]]] = {}
    for finding in json.loads(done.stdout):
        findings.setdefault(finding["subject"], []).append(finding)
    return done.returncode, findings


@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_helm_installs_what_doctor_reported_as_missing(team: Kube) -> None:
    _, before = doctor(team)
    (without,) = before["operator"]
    assert without["state"] != "ok" and "helm" in without["fix"]

    with operator.installed(team):
        code, after = doctor(team)
        output = team.elasticdl("doctor").stdout

    assert code == 0
    for subject in (
        "API server",
        "namespace",
        "rights to submit",
        "ElasticJob",
        "operator",
        "priority classes",
        "quota",
    ):
        assert [finding["state"] for finding in after[subject]] == ["ok"], after[subject]
    assert "ok      ElasticJob: elasticjobs.elasticdl.org of version" in output


@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_the_plain_manifests_install_the_same(team: Kube, tmp_path: Path) -> None:
    operator.load(image.ensure("torch"))
    above = os.path.relpath(ROOT / "deploy" / "manifests", tmp_path)
    (named,) = {
        container["image"].rpartition(":")[0]
        for resource in yaml.safe_load_all((ROOT / "deploy" / "manifests" / "operator.yaml").read_text())
        if resource["kind"] == "Deployment"
        for container in resource["spec"]["template"]["spec"]["containers"]
    }
    images = [{"name": named, "newName": "elasticdl", "newTag": "ci"}]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [above], "images": images}))
    try:
        team.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(tmp_path))
        team.kubectl(
            "rollout", "status", "deployment/elasticdl-operator", f"--namespace={PLAIN}", "--timeout=120s",
            timeout_s=150.0,
        )  # fmt: skip
        code, findings = doctor(team)
    finally:
        # All but the definition: other suites' jobs are of it.
        resources = [
            resource
            for resource in yaml.safe_load_all(team.kubectl("kustomize", str(tmp_path)))
            if "CustomRes" not in resource["kind"]
        ]
        team.kubectl("delete", "--filename=-", "--ignore-not-found", text=yaml.safe_dump_all(resources))

    assert code == 0
    assert findings["operator"][0]["message"].endswith(f"in namespace {PLAIN}")


def test_a_quota_that_admits_no_worker_is_reported_with_the_fix(team: Kube) -> None:
    hard = {"requests.memory": "1Gi"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small", "namespace": NAMESPACE}}
    team.kubectl("apply", "--filename=-", text=json.dumps(quota | {"spec": {"hard": hard}}))

    code, findings = doctor(team, f"--namespace={NAMESPACE}")
    team.kubectl("delete", "resourcequota", "small", f"--namespace={NAMESPACE}")

    assert code == 1
    (finding,) = findings["quota"]
    assert finding["message"] == "small has 0 of 1Gi requests.memory in use"
    assert "--worker_resource_request" in finding["fix"]


def test_too_few_rights_are_named_with_the_manifest_that_grants_them(team: Kube, tmp_path: Path) -> None:
    here = f"--namespace={NAMESPACE}"
    team.kubectl("create", "serviceaccount", "student", here)
    token = team.kubectl("create", "token", "student", here).strip()
    config = yaml.safe_load(team.kubectl("config", "view", "--raw", "--minify", "--flatten"))
    config["users"][0]["user"] = {"token": token}
    config["contexts"][0]["context"]["namespace"] = NAMESPACE
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    student = Kube({**team.environ, "KUBECONFIG": str(path)}, is_ours=False)
    job = ["train", "--image_name=zoo:1", "--model_def=m.m.f", "--training_data=/data", "--job_name=mine", "--detach"]

    refused = student.elasticdl(*job, check=False)
    code, findings = doctor(student)
    manifest = str(ROOT / "deploy" / "manifests" / "submitter.yaml")
    team.kubectl("apply", "--filename", manifest)
    team.kubectl(
        "create", "rolebinding", "submitters", "--clusterrole=elasticdl-submitter",
        f"--serviceaccount={NAMESPACE}:student", here,
    )  # fmt: skip
    allowed = student.elasticdl(*job, "--dry-run=server", check=False)
    team.kubectl("delete", "--filename", manifest)

    assert refused.returncode == 1
    assert "you may not create, delete, patch, get and list statefulsets" in refused.stderr, refused.stderr
    assert "kubectl apply -f deploy/manifests/submitter.yaml" in refused.stderr
    assert code == 1
    assert "you may not create statefulsets in install-suite" in [
        finding["message"] for finding in findings["rights to submit"]
    ]
    assert allowed.returncode == 0, allowed.stdout + allowed.stderr
