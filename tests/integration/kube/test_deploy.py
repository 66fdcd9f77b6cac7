"""The chart and the manifests in deploy/ install the same objects, and their rights are enough."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.launcher.kubernetes import access, job_secrets, manifest, naming
from elasticdl.operator import health
from elasticdl.spec.load import resolve_elastic_job
from tests.integration.kube.apiserver import NOBODY, ApiServer, programs
from tests.integration.kube.conftest import Connect
from tests.integration.kube.elastic_job import install, resource
from tests.integration.kube.operator_process import OperatorProcess
from tests.waiting import until

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
HELM_LABELS = ("helm.sh/chart", "app.kubernetes.io/managed-by")
RUN_AGAIN = "run `python deploy/render.py`"


def find_program(name: str) -> str:
    path = shutil.which(name, path=f"{programs()}:{os.environ['PATH']}")
    return path or pytest.skip(f"no {name} on this machine: set KUBEBUILDER_ASSETS")


def run(*words: str, environ: dict[str, str] | None = None, text: str | None = None) -> str:
    process = subprocess.run(
        [find_program(words[0]), *words[1:]], env=environ, input=text, text=True, capture_output=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def chart(*options: str) -> list[dict[str, Any]]:
    rendered = run("helm", "template", "elasticdl", str(DEPLOY / "chart"), "--namespace", "elasticdl", *options)
    return [document for document in yaml.safe_load_all(rendered) if document]


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(run("kubectl", "kustomize", str(DEPLOY / "manifests"))))


def by_name(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Objects by kind and name, without the labels of Helm."""
    for document in documents:
        for label in HELM_LABELS:
            document["metadata"].get("labels", {}).pop(label, None)
        document["metadata"].pop("annotations", None)
    return {f"{document['kind']} {document['metadata']['name']}": document for document in documents}


def granted_rights(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_generated_files_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(Path(find_program("helm")).parent))
    spec = importlib.util.spec_from_file_location("render", DEPLOY / "render.py")
    assert spec is not None and spec.loader is not None
    render: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(render)

    outdated = [path for path, text in render.files().items() if (DEPLOY / path).read_text() != text]

    assert outdated == [], RUN_AGAIN


def test_helm_lint_accepts_the_chart() -> None:
    assert "0 chart(s) failed" in run("helm", "lint", "--strict", str(DEPLOY / "chart"))


def test_the_manifests_equal_the_rendered_chart() -> None:
    plain = by_name(manifests())
    del plain["Namespace elasticdl"]

    assert plain == by_name(chart())


def test_each_value_of_the_chart_that_enables_objects_does_so() -> None:
    everything = by_name(chart("--set", "serviceMonitor.enabled=true,grafana.dashboard=true"))
    by_api = by_name(chart("--api-versions", "monitoring.coreos.com/v1/ServiceMonitor"))
    off = "crd.install=false,priorityClasses.create=false,submitter.create=false,serviceMonitor.enabled=false"
    minimal = by_name(chart("--set", off, "--api-versions", "monitoring.coreos.com/v1/ServiceMonitor"))

    assert set(everything) - set(by_name(chart())) == {
        "ServiceMonitor elasticdl-jobs",
        "ServiceMonitor elasticdl-operator",
        "ConfigMap elasticdl-dashboard",
    }
    assert json.loads(everything["ConfigMap elasticdl-dashboard"]["data"]["elasticdl.json"])["title"] == "ElasticDL"
    assert "ServiceMonitor elasticdl-jobs" in by_api
    assert not [name for name in minimal if re.match("CustomResource|PriorityClass|.*submitter|ServiceMonitor", name)]
    closed = by_name(chart("--set", "policies.create=false,metrics.networkPolicy=false"))
    assert {name.split()[0] for name in set(by_name(chart())) - set(closed)} == {
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "NetworkPolicy",
    }


def test_an_operator_of_named_namespaces_has_roles_there_and_the_same_rights() -> None:
    clusterwide = by_name(chart())
    documents = chart("--set", "namespaces={red,blue}")
    roles = [
        document
        for document in documents
        if document["kind"] == "Role" and document["metadata"]["name"] == "elasticdl-operator-jobs"
    ]
    (deployment,) = [document for document in documents if document["kind"] == "Deployment"]
    bindings = [document for document in documents if document["kind"] == "ValidatingAdmissionPolicyBinding"]

    assert [role["metadata"]["namespace"] for role in roles] == ["red", "blue"]
    assert all(role["rules"] == clusterwide["ClusterRole elasticdl-operator"]["rules"] for role in roles)
    assert not [name for name in by_name(documents) if name.startswith("ClusterRole") and "operator" in name]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["command"][-2:] == ["--watch=red", "--watch=blue"]
    for binding in bindings:
        (expression,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        assert expression["values"] == ["red", "blue"]


def test_the_dashboard_shows_metrics_that_exist() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "elasticdl.json").read_text())
    shown = {
        name
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
        for name in re.findall(r"elasticdl_\w+", target["expr"])
    }
    documented = set(re.findall(r"elasticdl_\w+", (ROOT / "docs" / "observability.md").read_text()))
    suffixes = ("", "_total", "_bucket")
    of_operator = {f"{metric.name}{suffix}" for metric in health.REGISTRY.collect() for suffix in suffixes}

    assert shown - documented - of_operator == set()


@pytest.mark.parametrize("role", ["elasticdl-operator", "elasticdl-submitter"])
def test_a_role_that_creates_masters_has_the_rights_that_it_grants_to_them(role: str) -> None:
    rights = granted_rights(by_name(manifests())[f"ClusterRole {role}"])
    of_masters = {(group, resource, verb) for group, resource, verbs in access.MASTER_RULES for verb in verbs}

    assert of_masters - rights == set()
    assert not [right for right in rights if "*" in right]


def test_the_operator_cannot_list_secrets_and_deletes_only_pods_and_config_maps() -> None:
    rights = granted_rights(by_name(manifests())["ClusterRole elasticdl-operator"])

    assert {verb for _, resource, verb in rights if resource == "secrets"} == {"get", "create"}
    assert {resource for _, resource, verb in rights if verb == "delete"} == {"pods", "configmaps"}


def test_a_job_editor_can_create_only_elastic_jobs() -> None:
    rights = granted_rights(by_name(manifests())["ClusterRole elasticdl-job-editor"])

    assert {resource for _, resource, verb in rights if verb not in ("get", "list", "watch")} == {
        "elasticjobs",
        "elasticjobs/scale",
    }
    assert "secrets" not in {resource for _, resource, _ in rights}


def apply(server: ApiServer, *documents: dict[str, Any]) -> str:
    environ = {**os.environ, "KUBECONFIG": str(server.kubeconfig())}
    text = yaml.safe_dump_all(documents)
    return run("kubectl", "apply", "--server-side", "-f", "-", environ=environ, text=text)


def test_an_api_server_accepts_the_chart_and_the_manifests(server: ApiServer) -> None:
    apply(server, by_name(manifests())["Namespace elasticdl"])
    environ = {**os.environ, "KUBECONFIG": str(server.kubeconfig())}
    rendered = yaml.safe_dump_all(chart("--set", "grafana.dashboard=true"))
    dry_run = ("--dry-run=server", "--server-side", "--force-conflicts")

    of_chart = run("kubectl", "apply", *dry_run, "-f", "-", environ=environ, text=rendered)
    of_manifests = run("kubectl", "apply", *dry_run, "-k", str(DEPLOY / "manifests"), environ=environ)

    assert "deployment.apps/elasticdl-operator" in of_chart
    assert "deployment.apps/elasticdl-operator" in of_manifests


def test_the_rights_of_the_operator_are_enough(server: ApiServer, api: Api, tmp_path: Path) -> None:
    install(api)
    apply(
        server,
        *(document for document in manifests() if document["kind"] not in ("Deployment", "CustomResourceDefinition")),
    )
    admin = server.kubeconfig()
    environ = {**os.environ, "KUBECONFIG": str(admin)}
    token = run("kubectl", "create", "token", "elasticdl-operator", "-n", "elasticdl", environ=environ).strip()
    config = json.loads(admin.read_text())
    config["users"] = [{"name": "admin", "user": {"token": token}}]
    config["contexts"][0]["context"]["namespace"] = "elasticdl"
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    environ["KUBECONFIG"] = str(tmp_path / "kubeconfig")
    operator = OperatorProcess(tmp_path / "log", environ, "elasticdl-operator")
    try:
        created = api.create(resource("mnist"))
        until("the master is created", lambda: api.get(kinds.STATEFUL_SET, "mnist-master"))
        pod = manifest.replica_pod(
            resolve_elastic_job(created), "worker-0", "worker", naming.Owner.from_object(created)
        )
        api.create(pod)
        api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"suspend": True}})
        until("the worker is deleted", lambda: not api.get(kinds.POD, "mnist-worker-0"))
        until("an event", lambda: [event for event in api.list(kinds.EVENT)[0] if event["reason"] == "Suspended"])
    finally:
        operator.end(signal.SIGKILL)
    log = operator.log.read_text()

    assert "orbidden" not in log and "Not enough permissions" not in log


def test_the_rights_of_a_submitter_are_enough(server: ApiServer, api: Api, connect: Connect, namespace: str) -> None:
    install(api)
    apply(server, by_name(manifests())["ClusterRole elasticdl-submitter"])
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "elasticdl-submitter"}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": NOBODY}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "roleRef": role, "subjects": [user]}
    api.create({**binding, "metadata": {"name": "submitters", "namespace": namespace}})
    user_api = connect(user=NOBODY, namespace=namespace)

    until("the rights are effective", lambda: user_api.is_allowed("create", kinds.ELASTIC_JOB, namespace))
    created = user_api.create(resource("mnist", namespace))
    job = resolve_elastic_job(created)
    for document in manifest.job_objects(job, job_secrets.create_secrets(job), naming.Owner.from_object(created)):
        user_api.create(document)
    user_api.create(manifest.master_stateful_set(job, naming.Owner.from_object(created)))

    assert user_api.delete(kinds.ELASTIC_JOB, "mnist", namespace)
    assert not user_api.is_allowed("list", kinds.SECRET, namespace)
