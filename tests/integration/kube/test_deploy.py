"""What deploy/ installs: the chart and the plain manifests are the same, and the rights in them are enough."""

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


def program(name: str) -> str:
    found = shutil.which(name, path=f"{programs()}:{os.environ['PATH']}")
    return found or pytest.skip(f"no {name} on this machine: set KUBEBUILDER_ASSETS")


def run(*words: str, environ: dict[str, str] | None = None, given: str | None = None) -> str:
    done = subprocess.run(
        [program(words[0]), *words[1:]], env=environ, input=given, text=True, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def chart(*options: str) -> list[dict[str, Any]]:
    rendered = run("helm", "template", "elasticdl", str(DEPLOY / "chart"), "--namespace", "elasticdl", *options)
    return [document for document in yaml.safe_load_all(rendered) if document]


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(run("kubectl", "kustomize", str(DEPLOY / "manifests"))))


def by_name(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Without what only Helm needs."""
    for document in documents:
        for label in HELM_LABELS:
            document["metadata"].get("labels", {}).pop(label, None)
        document["metadata"].pop("annotations", None)
    return {f"{document['kind']} {document['metadata']['name']}": document for document in documents}


def granted(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_files_that_are_made_are_as_they_would_be_made_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(Path(program("helm")).parent))
    spec = importlib.util.spec_from_file_location("render", DEPLOY / "render.py")
    assert spec is not None and spec.loader is not None
    render: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(render)

    differing = [path for path, text in render.files().items() if (DEPLOY / path).read_text() != text]

    assert differing == [], RUN_AGAIN


def test_helm_has_nothing_to_complain_about() -> None:
    assert "0 chart(s) failed" in run("helm", "lint", "--strict", str(DEPLOY / "chart"))


def test_the_plain_manifests_are_the_chart() -> None:
    plain = by_name(manifests())
    del plain["Namespace elasticdl"]

    assert plain == by_name(chart())


def test_each_switch_of_the_chart_switches() -> None:
    everything = by_name(chart("--set", "serviceMonitor.enabled=true,grafana.dashboard=true"))
    by_api = by_name(chart("--api-versions", "monitoring.coreos.com/v1/ServiceMonitor"))
    off = "crd.install=false,priorityClasses.create=false,submitter.create=false,serviceMonitor.enabled=false"
    least = by_name(chart("--set", off, "--api-versions", "monitoring.coreos.com/v1/ServiceMonitor"))

    assert set(everything) - set(by_name(chart())) == {
        "ServiceMonitor elasticdl-jobs",
        "ServiceMonitor elasticdl-operator",
        "ConfigMap elasticdl-dashboard",
    }
    assert json.loads(everything["ConfigMap elasticdl-dashboard"]["data"]["elasticdl.json"])["title"] == "ElasticDL"
    assert "ServiceMonitor elasticdl-jobs" in by_api
    assert not [name for name in least if re.match("CustomResource|PriorityClass|.*submitter|ServiceMonitor", name)]
    closed = by_name(chart("--set", "policies.create=false,metrics.networkPolicy=false"))
    assert {name.split()[0] for name in set(by_name(chart())) - set(closed)} == {
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "NetworkPolicy",
    }


def test_an_operator_of_named_namespaces_has_roles_there_and_the_same_rights() -> None:
    whole = by_name(chart())
    named = chart("--set", "namespaces={red,blue}")
    roles = [one for one in named if one["kind"] == "Role" and one["metadata"]["name"] == "elasticdl-operator-jobs"]
    (deployment,) = [one for one in named if one["kind"] == "Deployment"]
    bindings = [one for one in named if one["kind"] == "ValidatingAdmissionPolicyBinding"]

    assert [role["metadata"]["namespace"] for role in roles] == ["red", "blue"]
    assert all(role["rules"] == whole["ClusterRole elasticdl-operator"]["rules"] for role in roles)
    assert not [one for one in by_name(named) if one.startswith("ClusterRole") and "operator" in one]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["command"][-2:] == ["--watch=red", "--watch=blue"]
    for binding in bindings:
        (selected,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        assert selected["values"] == ["red", "blue"]


def test_the_dashboard_shows_figures_that_exist() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "elasticdl.json").read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
        for name in re.findall(r"elasticdl_\w+", target["expr"])
    }
    documented = set(re.findall(r"elasticdl_\w+", (ROOT / "docs" / "observability.md").read_text()))
    own = {f"{family.name}{end}" for family in health.REGISTRY.collect() for end in ("", "_total", "_bucket")}

    assert asked - documented - own == set()


@pytest.mark.parametrize("role", ["elasticdl-operator", "elasticdl-submitter"])
def test_whoever_makes_a_master_has_what_it_grants_to_it(role: str) -> None:
    found = granted(by_name(manifests())[f"ClusterRole {role}"])
    wanted = {(group, resource, verb) for group, resource, verbs in access.MASTER_RULES for verb in verbs}

    assert wanted - found == set()
    assert not [right for right in found if "*" in right]


def test_the_operator_may_not_list_secrets_nor_delete_what_it_did_not_make() -> None:
    found = granted(by_name(manifests())["ClusterRole elasticdl-operator"])

    assert {verb for _, resource, verb in found if resource == "secrets"} == {"get", "create"}
    assert {resource for _, resource, verb in found if verb == "delete"} == {"pods", "configmaps"}


def test_who_may_have_elasticjobs_may_make_nothing_else() -> None:
    found = granted(by_name(manifests())["ClusterRole elasticdl-job-editor"])

    assert {resource for _, resource, verb in found if verb not in ("get", "list", "watch")} == {
        "elasticjobs",
        "elasticjobs/scale",
    }
    assert "secrets" not in {resource for _, resource, _ in found}


def apply(server: ApiServer, *documents: dict[str, Any]) -> str:
    environ = {**os.environ, "KUBECONFIG": str(server.kubeconfig())}
    text = yaml.safe_dump_all(documents)
    return run("kubectl", "apply", "--server-side", "-f", "-", environ=environ, given=text)


def test_an_api_server_takes_all_of_it(server: ApiServer) -> None:
    apply(server, by_name(manifests())["Namespace elasticdl"])
    environ = {**os.environ, "KUBECONFIG": str(server.kubeconfig())}
    rendered = yaml.safe_dump_all(chart("--set", "grafana.dashboard=true"))
    dry_run = ("--dry-run=server", "--server-side", "--force-conflicts")

    taken = run("kubectl", "apply", *dry_run, "-f", "-", environ=environ, given=rendered)
    plain = run("kubectl", "apply", *dry_run, "-k", str(DEPLOY / "manifests"), environ=environ)

    assert "deployment.apps/elasticdl-operator" in taken
    assert "deployment.apps/elasticdl-operator" in plain


def test_the_rights_of_the_operator_are_enough(server: ApiServer, api: Api, tmp_path: Path) -> None:
    install(api)
    apply(server, *(one for one in manifests() if one["kind"] not in ("Deployment", "CustomResourceDefinition")))
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
        made = api.create(resource("mnist"))
        until("the master is there", lambda: api.get(kinds.STATEFUL_SET, "mnist-master"))
        pod = manifest.replica_pod(resolve_elastic_job(made), "worker-0", "worker", naming.Owner.from_object(made))
        api.create(pod)
        api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"suspend": True}})
        until("the worker is given back", lambda: not api.get(kinds.POD, "mnist-worker-0"))
        until("an event", lambda: [one for one in api.list(kinds.EVENT)[0] if one["reason"] == "Suspended"])
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
    person = connect(user=NOBODY, namespace=namespace)

    until("the rights are in force", lambda: person.is_allowed("create", kinds.ELASTIC_JOB, namespace))
    made = person.create(resource("mnist", namespace))
    job = resolve_elastic_job(made)
    for document in manifest.job_objects(job, job_secrets.create_secrets(job), naming.Owner.from_object(made)):
        person.create(document)
    person.create(manifest.master_stateful_set(job, naming.Owner.from_object(made)))

    assert person.delete(kinds.ELASTIC_JOB, "mnist", namespace)
    assert not person.is_allowed("list", kinds.SECRET, namespace)
