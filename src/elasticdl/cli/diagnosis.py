"""What a cluster has of what jobs need: access, rights, versions, room. Each finding comes with its fix."""

from __future__ import annotations

from collections.abc import Iterator

import elasticdl
from elasticdl.cli import cluster_check, installation, rights
from elasticdl.cli.installation import MISSING, NOTE, OK, Finding
from elasticdl.cli.place import connect
from elasticdl.errors import ElasticDLError
from elasticdl.kube.api import EVERYWHERE, Api
from elasticdl.kube.errors import Forbidden
from elasticdl.kube.kinds import CRD, NETWORK_POLICY, POD, PRIORITY_CLASS, RESOURCE_QUOTA, Kind
from elasticdl.launcher import access, resources
from elasticdl.spec.cluster import ClusterSpec, amount

CRD_NAME = "elasticjobs.elasticdl.org"
VERSION_LABEL = "elasticdl.org/version"
OPERATOR = "app.kubernetes.io/name=elasticdl,app.kubernetes.io/component=operator"
CHART = "helm install elasticdl deploy/chart"
STORAGE_CLASS = Kind("storage.k8s.io/v1", "StorageClass", "storageclasses", namespaced=False)
_DEFAULT = "storageclass.kubernetes.io/is-default-class"


def no_cluster() -> Finding:
    """What there is to say where nobody configured a cluster, or asked for one."""
    packages = installation.clients()
    install = f"{packages.fix}, then " if packages.state == MISSING else ""
    told = "none is configured; jobs run on this machine"
    return Finding("Kubernetes", NOTE, told, f"not needed; for jobs on a cluster: {install}set KUBECONFIG")


def findings(context: str = "", namespace: str = "") -> Iterator[Finding]:
    """One after another; where the cluster cannot be reached, nothing after that."""
    packages = installation.clients()
    yield packages
    if packages.state == MISSING:
        return
    try:
        api = connect(context)
    except ElasticDLError as exc:
        yield Finding("kubeconfig", MISSING, str(exc), "set KUBECONFIG, or choose a context with --context")
        return
    yield Finding("kubeconfig", OK, f"context {api.context or 'of this pod'}, {api.server}")
    namespace = namespace or api.namespace
    try:
        yield Finding("API server", OK, f"{api.server} is of version {api.version()}")
    except ElasticDLError as exc:
        fix = "is the server up, and does its address in the kubeconfig hold? See `kubectl cluster-info`"
        yield Finding("API server", MISSING, str(exc), fix)
        return
    for check in (_namespace, _rights, _definition, _operator, _priorities, _storage, _quotas, _network):
        try:
            yield from check(api, namespace)
        except Forbidden as exc:
            yield Finding(check.__name__.strip("_"), NOTE, f"you may not look at it: {exc}")
        except ElasticDLError as exc:
            yield Finding(check.__name__.strip("_"), MISSING, str(exc), "try again; then see the API server's log")


def _namespace(api: Api, namespace: str) -> Iterator[Finding]:
    try:
        cluster_check.check_namespace(api, namespace)
        yield Finding("namespace", OK, namespace)
    except ElasticDLError as exc:
        yield Finding("namespace", MISSING, str(exc), f"kubectl create namespace {namespace}")


def _rights(api: Api, namespace: str) -> Iterator[Finding]:
    granted = rights.given_by(
        {
            "rules": [
                {"apiGroups": [group], "resources": [what], "verbs": verbs} for group, what, verbs in access.GRANTED
            ]
        }
    )
    purposes = {
        "rights to submit": rights.SUBMIT,
        "rights to look": rights.LOOK,
        "rights to hand on to masters": tuple(granted),
    }
    for purpose, needed in purposes.items():
        lacking = rights.missing(api, namespace, needed)
        for right in lacking:
            yield Finding(purpose, MISSING, f"you may not {right} in {namespace}", rights.remedy(namespace))
        if not lacking:
            yield Finding(purpose, OK, f"all in {namespace}: {rights.told(dict.fromkeys(needed))}")


def _definition(api: Api, namespace: str) -> Iterator[Finding]:
    found = api.get(CRD, CRD_NAME)
    if found is None:
        yield Finding("ElasticJob", NOTE, "not installed: only needed for `kubectl apply` of jobs", CHART)
        return
    version = found["metadata"].get("labels", {}).get(VERSION_LABEL, "unknown")
    if version != elasticdl.__version__:
        told = f"{CRD_NAME} is of version {version}, this is elasticdl {elasticdl.__version__}"
        fix = f"use a clone or wheel of elasticdl {version}, or kubectl apply -k deploy/manifests, or helm upgrade"
        yield Finding("ElasticJob", MISSING, told, fix)
        return
    yield Finding("ElasticJob", OK, f"{CRD_NAME} of version {version}")


def _operator(api: Api, namespace: str) -> Iterator[Finding]:
    pods, _ = api.list(POD, EVERYWHERE, OPERATOR)
    running = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]
    if running:
        metadata = running[0]["metadata"]
        yield Finding("operator", OK, f"{metadata['name']} in namespace {metadata['namespace']}")
    elif api.get(CRD, CRD_NAME) is None:
        yield Finding("operator", NOTE, "not installed: only needed for `kubectl apply` of jobs", CHART)
    else:
        told = f"ElasticJob is installed, but {len(pods)} of its operator's pods exist and none runs"
        fix = f"kubectl get pods -A -l {OPERATOR}; {CHART.replace('install', 'upgrade --install')}"
        yield Finding("operator", MISSING, told, fix)


def _priorities(api: Api, namespace: str) -> Iterator[Finding]:
    absent = [name for name in (resources.HIGH, resources.LOW) if api.get(PRIORITY_CLASS, name) is None]
    if absent:
        told = f"no {', no '.join(absent)}: only needed for --…_pod_priority=high, low or a share"
        yield Finding("priority classes", NOTE, told, f"{CHART}, or kubectl apply -k deploy/manifests")
    else:
        yield Finding("priority classes", OK, f"{resources.HIGH}, {resources.LOW}")


def _storage(api: Api, namespace: str) -> Iterator[Finding]:
    classes = [one["metadata"] for one in api.list(STORAGE_CLASS)[0]]
    default = [one["name"] for one in classes if one.get("annotations", {}).get(_DEFAULT) == "true"]
    if default:
        yield Finding("default StorageClass", OK, default[0])
    else:
        told = "none: a claim for checkpoints must name its class, or its volume"
        yield Finding("default StorageClass", NOTE, told, "not needed with --checkpoint_dir behind a URL")


def _quotas(api: Api, namespace: str) -> Iterator[Finding]:
    """Whether one more worker, as it is by default, would be let in."""
    quotas, _ = api.list(RESOURCE_QUOTA, namespace)
    asked = {"pods": "1", "count/pods": "1"}
    for name, quantity in ClusterSpec.model_fields["worker"].default.requests.items():
        asked |= {name: quantity, f"requests.{name}": quantity}
    for quota in quotas:
        status = quota.get("status", {})
        hard, used = status.get("hard") or quota["spec"].get("hard", {}), status.get("used", {})
        for name, quantity in asked.items():
            if name in hard and amount(used.get(name, "0")) + amount(quantity) > amount(hard[name]):
                told = f"{quota['metadata']['name']} has {used.get(name, '0')} of {hard[name]} {name} in use"
                fix = (
                    f"a worker asks for {quantity} by default: ask for less with --worker_resource_request, or raise it"
                )
                yield Finding("quota", MISSING, told, fix)
                break
        else:
            yield Finding("quota", OK, f"{quota['metadata']['name']} lets a worker in")
    if not quotas:
        yield Finding("quota", OK, f"none in {namespace}")


def _network(api: Api, namespace: str) -> Iterator[Finding]:
    count = len(api.list(NETWORK_POLICY, namespace)[0])
    told = f"{count} in {namespace}; whether this cluster's network heeds them, the API does not say"
    yield Finding("NetworkPolicy", NOTE, told)
