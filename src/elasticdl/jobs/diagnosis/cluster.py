"""Checks what jobs need from a cluster: access, rights, versions, quotas. Each finding comes with its fix."""

from __future__ import annotations

from collections.abc import Iterator

import elasticdl
from elasticdl.errors import ElasticDLError
from elasticdl.jobs.diagnosis import installation
from elasticdl.jobs.diagnosis.installation import MISSING, NOTE, OK, DiagnosisFinding
from elasticdl.jobs.kubernetes import preflight, rights
from elasticdl.jobs.lookup import connect_cluster
from elasticdl.kube.api import ALL_NAMESPACES, Api
from elasticdl.kube.errors import Forbidden
from elasticdl.kube.kinds import CRD, NETWORK_POLICY, POD, PRIORITY_CLASS, RESOURCE_QUOTA, ResourceKind
from elasticdl.launcher.kubernetes import access, resources
from elasticdl.spec.cluster import ClusterSpec, parse_quantity

CRD_NAME = "elasticjobs.elasticdl.org"
VERSION_LABEL = "elasticdl.org/version"
OPERATOR_SELECTOR = "app.kubernetes.io/name=elasticdl,app.kubernetes.io/component=operator"
CHART_COMMAND = "helm install elasticdl deploy/chart"
STORAGE_CLASS = ResourceKind("storage.k8s.io/v1", "StorageClass", "storageclasses", namespaced=False)
_DEFAULT_CLASS_ANNOTATION = "storageclass.kubernetes.io/is-default-class"


def no_cluster_finding() -> DiagnosisFinding:
    """The finding when no cluster is configured or requested."""
    packages = installation.diagnose_kubernetes_client()
    install = f"{packages.fix}, then " if packages.state == MISSING else ""
    message = "none is configured; jobs run on this machine"
    return DiagnosisFinding("Kubernetes", NOTE, message, f"not needed; for jobs on a cluster: {install}set KUBECONFIG")


def diagnose_cluster(context: str = "", namespace: str = "") -> Iterator[DiagnosisFinding]:
    """Run the checks one after another; stop if the cluster cannot be reached."""
    packages = installation.diagnose_kubernetes_client()
    yield packages
    if packages.state == MISSING:
        return
    try:
        api = connect_cluster(context)
    except ElasticDLError as exc:
        yield DiagnosisFinding("kubeconfig", MISSING, str(exc), "set KUBECONFIG, or choose a context with --context")
        return
    yield DiagnosisFinding("kubeconfig", OK, f"context {api.context or 'of this pod'}, {api.server}")
    namespace = namespace or api.namespace
    try:
        yield DiagnosisFinding("API server", OK, f"{api.server} has version {api.version()}")
    except ElasticDLError as exc:
        fix = "check that the server runs and that its address in the kubeconfig is right: `kubectl cluster-info`"
        yield DiagnosisFinding("API server", MISSING, str(exc), fix)
        return
    for check in (_namespace, _rights, _definition, _operator, _priorities, _storage, _quotas, _network):
        try:
            yield from check(api, namespace)
        except Forbidden as exc:
            yield DiagnosisFinding(check.__name__.strip("_"), NOTE, f"you may not read it: {exc}")
        except ElasticDLError as exc:
            yield DiagnosisFinding(
                check.__name__.strip("_"), MISSING, str(exc), "try again; then see the API server's log"
            )


def _namespace(api: Api, namespace: str) -> Iterator[DiagnosisFinding]:
    try:
        preflight.check_namespace(api, namespace)
        yield DiagnosisFinding("namespace", OK, namespace)
    except ElasticDLError as exc:
        yield DiagnosisFinding("namespace", MISSING, str(exc), f"kubectl create namespace {namespace}")


def _rights(api: Api, namespace: str) -> Iterator[DiagnosisFinding]:
    granted = rights.rights_of_role(
        {
            "rules": [
                {"apiGroups": [group], "resources": [resource], "verbs": verbs}
                for group, resource, verbs in access.ALL_MASTER_RULES
            ]
        }
    )
    purposes = {
        "rights to submit": rights.SUBMIT_RIGHTS,
        "rights to view": rights.VIEW_RIGHTS,
        "rights to grant to masters": tuple(granted),
    }
    for purpose, needed in purposes.items():
        lacking = rights.missing_rights(api, namespace, needed)
        for right in lacking:
            yield DiagnosisFinding(
                purpose, MISSING, f"you may not {right} in {namespace}", rights.grant_instructions(namespace)
            )
        if not lacking:
            yield DiagnosisFinding(purpose, OK, f"all in {namespace}: {rights.describe_rights(dict.fromkeys(needed))}")


def _definition(api: Api, namespace: str) -> Iterator[DiagnosisFinding]:
    definition = api.get(CRD, CRD_NAME)
    if definition is None:
        yield DiagnosisFinding(
            "ElasticJob", NOTE, "not installed: only needed for `kubectl apply` of jobs", CHART_COMMAND
        )
        return
    version = definition["metadata"].get("labels", {}).get(VERSION_LABEL, "unknown")
    if version != elasticdl.__version__:
        message = f"{CRD_NAME} has version {version}, this is elasticdl {elasticdl.__version__}"
        fix = f"use a clone or wheel of elasticdl {version}, or kubectl apply -k deploy/manifests, or helm upgrade"
        yield DiagnosisFinding("ElasticJob", MISSING, message, fix)
        return
    yield DiagnosisFinding("ElasticJob", OK, f"{CRD_NAME} has version {version}")


def _operator(api: Api, namespace: str) -> Iterator[DiagnosisFinding]:
    pods, _ = api.list(POD, ALL_NAMESPACES, OPERATOR_SELECTOR)
    running = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]
    if running:
        metadata = running[0]["metadata"]
        yield DiagnosisFinding("operator", OK, f"{metadata['name']} in namespace {metadata['namespace']}")
    elif api.get(CRD, CRD_NAME) is None:
        yield DiagnosisFinding(
            "operator", NOTE, "not installed: only needed for `kubectl apply` of jobs", CHART_COMMAND
        )
    else:
        message = f"ElasticJob is installed, but {len(pods)} of its operator's pods exist and none runs"
        fix = f"kubectl get pods -A -l {OPERATOR_SELECTOR}; {CHART_COMMAND.replace('install', 'upgrade --install')}"
        yield DiagnosisFinding("operator", MISSING, message, fix)


def _priorities(api: Api, namespace: str) -> Iterator[DiagnosisFinding]:
    absent = [
        name for name in (resources.HIGH_PRIORITY, resources.LOW_PRIORITY) if api.get(PRIORITY_CLASS, name) is None
    ]
    if absent:
        message = f"no {', no '.join(absent)}: only needed for --…_pod_priority=high, low or a share"
        yield DiagnosisFinding(
            "priority classes", NOTE, message, f"{CHART_COMMAND}, or kubectl apply -k deploy/manifests"
        )
    else:
        yield DiagnosisFinding("priority classes", OK, f"{resources.HIGH_PRIORITY}, {resources.LOW_PRIORITY}")


def _storage(api: Api, namespace: str) -> Iterator[DiagnosisFinding]:
    classes = [storage_class["metadata"] for storage_class in api.list(STORAGE_CLASS)[0]]
    default = [
        storage_class["name"]
        for storage_class in classes
        if storage_class.get("annotations", {}).get(_DEFAULT_CLASS_ANNOTATION) == "true"
    ]
    if default:
        yield DiagnosisFinding("default StorageClass", OK, default[0])
    else:
        message = "none: a PersistentVolumeClaim for checkpoints must name its class, or its volume"
        yield DiagnosisFinding("default StorageClass", NOTE, message, "not needed if --checkpoint_dir is a URL")


def _quotas(api: Api, namespace: str) -> Iterator[DiagnosisFinding]:
    """Check that the quotas admit one more worker with the default requests."""
    quotas, _ = api.list(RESOURCE_QUOTA, namespace)
    requested = {"pods": "1", "count/pods": "1"}
    for name, quantity in ClusterSpec.model_fields["worker"].default.requests.items():
        requested |= {name: quantity, f"requests.{name}": quantity}
    for quota in quotas:
        status = quota.get("status", {})
        hard, used = status.get("hard") or quota["spec"].get("hard", {}), status.get("used", {})
        for name, quantity in requested.items():
            if name in hard and parse_quantity(used.get(name, "0")) + parse_quantity(quantity) > parse_quantity(
                hard[name]
            ):
                message = f"{quota['metadata']['name']} has {used.get(name, '0')} of {hard[name]} {name} in use"
                fix = (
                    f"a worker requests {quantity} by default: request less with --worker_resource_request, "
                    "or raise the quota"
                )
                yield DiagnosisFinding("quota", MISSING, message, fix)
                break
        else:
            yield DiagnosisFinding("quota", OK, f"{quota['metadata']['name']} admits a worker")
    if not quotas:
        yield DiagnosisFinding("quota", OK, f"none in {namespace}")


def _network(api: Api, namespace: str) -> Iterator[DiagnosisFinding]:
    count = len(api.list(NETWORK_POLICY, namespace)[0])
    message = f"{count} in {namespace}; the API does not show whether this cluster's network enforces them"
    yield DiagnosisFinding("NetworkPolicy", NOTE, message)
