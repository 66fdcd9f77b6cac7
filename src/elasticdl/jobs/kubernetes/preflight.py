"""Checks a job before it is created on a cluster, so that errors come at once and with a fix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from elasticdl.errors import AccessDenied, NameInUse, SpecError
from elasticdl.jobs.kubernetes import rights
from elasticdl.kube.api import Api
from elasticdl.kube.errors import Forbidden
from elasticdl.kube.kinds import NAMESPACE, PERSISTENT_VOLUME_CLAIM, PRIORITY_CLASS, SECRET, STATEFUL_SET, ResourceKind
from elasticdl.launcher.kubernetes import resources
from elasticdl.launcher.kubernetes.naming import PS, ROLES, cluster_spec, master_name
from elasticdl.spec import JobKind, JobSpec
from elasticdl.spelling import did_you_mean

INSTALL_HINT = "`helm install elasticdl deploy/chart` or deploy/manifests creates them"


def check_spec(spec: JobSpec) -> None:
    """Raise an error for mistakes in the job's spec, without access to the cluster."""
    if spec.kind in (JobKind.EVALUATION, JobKind.PREDICTION) and not spec.checkpoint.init_from:
        raise SpecError(
            f"checkpoint.init_from (--checkpoint_dir_for_init): {spec.kind} needs the checkpoint of a model"
        )
    if (
        spec.kind is JobKind.TRAINING
        and not spec.data.validation
        and (spec.evaluation.every_steps or spec.evaluation.every_epochs)
    ):
        raise SpecError("evaluation: there is no data to evaluate on; set --validation_data")
    if spec.security.is_on:
        raise SpecError(
            "security (--tls_cert, --tls_key, --tls_ca): on Kubernetes each job gets certificates of its own; "
            "omit these options"
        )
    if spec.checkpoint.resume and spec.restarts_script:
        raise SpecError(
            "--resume: an unmodified script loads its own checkpoints from its --volume; "
            "submit it again without --resume"
        )
    if spec.checkpoint.resume and not spec.checkpoint.directory:
        raise SpecError("--resume: on Kubernetes it needs --checkpoint_dir, on a --volume or as a URL")


def check_cluster(api: Api, spec: JobSpec, objects: Iterable[dict[str, Any]]) -> None:
    """Raise an error for the first problem found on the cluster. `objects` are those that will be created."""
    cluster = cluster_spec(spec)
    check_namespace(api, cluster.namespace)
    _check_rights(api, cluster.namespace, objects)
    _check_name(api, spec)
    classes = {
        resources.priority_class(spec, role, is_high)
        for role in ROLES
        for is_high in (True, False)
        if role != PS or spec.ps.replicas
    }
    _check_objects_exist(api, PRIORITY_CLASS, "", classes, "priority (--…_pod_priority)", f"; {INSTALL_HINT}")
    claims = {*(volume.claim_name for volume in cluster.volumes), cluster.journal_claim}
    _check_objects_exist(api, PERSISTENT_VOLUME_CLAIM, cluster.namespace, claims, "volumes (--volume, --journal_claim)")
    secrets = {*cluster.image_pull_secrets, *cluster.env_from_secrets}
    _check_objects_exist(api, SECRET, cluster.namespace, secrets, "secrets (--image_pull_secrets, --env_secrets)")


def check_namespace(api: Api, namespace: str) -> None:
    """Raise SpecError if the namespace does not exist. If the user may not read namespaces, it is not checked."""
    try:
        if api.get(NAMESPACE, namespace) is not None:
            return
        names = [item["metadata"]["name"] for item in api.list(NAMESPACE)[0]]
    except Forbidden:
        return
    hint = did_you_mean(namespace, names, f"; create it with `kubectl create namespace {namespace}`")
    raise SpecError(f"namespace (--namespace): there is no namespace {namespace!r} in context {api.context!r}{hint}")


def describe_ephemeral_paths(spec: JobSpec) -> list[str]:
    """Warnings about output and checkpoints that are lost together with their pods."""
    warnings = []
    if spec.output and not spec.is_durable(spec.output):
        warnings.append(
            f"--output={spec.output} is inside the pod that writes it and is deleted with it: "
            "to keep it, set a path on a --volume"
        )
    if spec.restarts_script:
        if not any(not volume.read_only for volume in cluster_spec(spec).volumes):
            warnings.append(
                "checkpoints that the script writes are deleted with its pod, so a restarted script starts from "
                "scratch: let it write to a --volume"
            )
    elif not spec.has_durable_checkpoints:
        warnings.append(
            "checkpoints are deleted with the pods: --checkpoint_dir is neither on a --volume nor a URL; "
            "a job that loses all its workers at once starts from scratch"
        )
    return warnings


def _check_rights(api: Api, namespace: str, objects: Iterable[dict[str, Any]]) -> None:
    granted = [right for document in objects if document["kind"] == "Role" for right in rights.rights_of_role(document)]
    lacking = rights.missing_rights(api, namespace, (*rights.SUBMIT_RIGHTS, *rights.VIEW_RIGHTS, *granted))
    if lacking:
        raise AccessDenied(
            f"you may not {rights.describe_rights(lacking)} in namespace {namespace} of context {api.context!r}; "
            f"{rights.grant_instructions(namespace)}"
        )


def _check_name(api: Api, spec: JobSpec) -> None:
    namespace = cluster_spec(spec).namespace
    if api.get(STATEFUL_SET, master_name(spec), namespace) is not None:
        raise NameInUse(
            f"job {spec.name!r} already exists in namespace {namespace}; see it with "
            f"`elasticdl status {spec.name}`, delete it with `elasticdl stop {spec.name} --delete`, "
            "or choose another --job_name"
        )


def _check_objects_exist(
    api: Api, kind: ResourceKind, namespace: str, names: Iterable[str], label: str, remedy: str = ""
) -> None:
    """Raise SpecError if an object that the job refers to does not exist. Skipped if the user may not read the kind."""
    for name in sorted(filter(None, names)):
        try:
            if api.get(kind, name, namespace) is not None:
                continue
            existing = [item["metadata"]["name"] for item in api.list(kind, namespace)[0]]
        except Forbidden:
            return
        location = f" in namespace {namespace}" if namespace else ""
        available = f"; there are {', '.join(existing[:5])}" if existing else "; there is none"
        raise SpecError(f"{label}: no {kind.kind} {name!r}{location}{did_you_mean(name, existing, available)}{remedy}")
