"""Brings the objects of a job into the state that its ElasticJob describes.

`reconcile` creates missing objects and does not change existing ones, apart from the number of the master's pods. It
keeps no state between calls, and writes nothing if everything is as described; any number of calls has the same effect
as one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.kube.errors import AlreadyExists, ApiUnavailable, Conflict
from elasticdl.launcher.kubernetes import job_secrets, manifest, naming, status_map
from elasticdl.operator import finalizer, job_status
from elasticdl.operator.context import Document, ElasticJobContext, ObjectConflict, ReportEvent
from elasticdl.operator.finalizer import StillTerminating
from elasticdl.spec.job import JobSpec
from elasticdl.spec.load import resolve_elastic_job


def reconcile(api: Api, resource: Document, report: ReportEvent) -> Document | None:
    """Reconciles one job and returns the StatefulSet of its master, if there is one now.

    Raises a TransientError to be called again. What users need to know is in the resource's status and events.
    """
    job_context = ElasticJobContext(api, resource, report)
    if finalizer.is_being_deleted(resource):
        finalizer.finalize(api, resource, job_context.pod_owners())
        return None  # owner references delete everything else
    job = master = result = None
    try:
        master = job_context.find_owned(kinds.STATEFUL_SET, job_context.master_name)
        job = _determine_job(job_context, master)
        result = _read_job_result(job_context, master)
        if job is not None and result is None and not job_status.is_over(resource):
            job_context.resource = finalizer.add_finalizer(api, resource)
            if master is None:
                master = _create_job(job_context, job)
            else:
                _recreate_missing(job_context, job)
            master = _scale_master(job_context, job, master)
        else:
            job_context.resource = finalizer.remove_finalizer(api, resource)
    except ApiUnavailable:
        raise
    except ElasticDLError as exc:
        _write_status(job_context, job, master, result, blocked_reason=str(exc))
        raise
    _write_status(job_context, job, master, result)
    return master


def _determine_job(job_context: ElasticJobContext, master: Document | None) -> JobSpec | None:
    """The spec of the running job, otherwise that of the resource; None if that is invalid."""
    running = _read_running_job(job_context) if master else None
    if running is not None:
        problem = job_status.explain_unsupported_change(running, job_context.resource)
        job_context.conditions += [
            job_status.accepted_condition(),
            job_status.not_applied_condition("UnsupportedChange", problem)
            if problem
            else job_status.applied_condition(),
        ]
        return running
    try:
        job = resolve_elastic_job(job_context.resource)
    except SpecError as exc:
        job_context.conditions.append(job_status.not_accepted_condition(str(exc)))
        return None
    job_context.conditions += [job_status.accepted_condition(), job_status.applied_condition()]
    return job


def _read_running_job(job_context: ElasticJobContext) -> JobSpec | None:
    config_map = job_context.find_owned(kinds.CONFIG_MAP, f"{job_context.name}-spec")
    return JobSpec.model_validate(json.loads(config_map["data"][manifest.SPEC_KEY])) if config_map else None


def _read_job_result(job_context: ElasticJobContext, master: Document | None) -> Document | None:
    """The result of a job that is over: its master writes the result first and then scales itself to 0."""
    if master is None or master["spec"]["replicas"]:
        return None
    config_map_name = status_map.status_map_name(job_context.name)
    config_map = job_context.api.get(kinds.CONFIG_MAP, config_map_name, job_context.namespace)
    return status_map.read_result(config_map, master["metadata"]["uid"])


def _create_job(job_context: ElasticJobContext, job: JobSpec) -> Document:
    """Creates all objects of the job, the master last: when it starts, everything that it needs exists."""
    for document in manifest.job_objects(job, job_secrets.create_secrets(job), job_context.owner):
        _create_object(job_context, document)
    # An operator that was killed after it had created the ConfigMap of the spec may have left an older spec behind.
    running = _read_running_job(job_context) or job
    document = manifest.master_stateful_set(running, job_context.owner)
    document["spec"]["replicas"] = job_context.master_replicas
    created = _create_object(job_context, document)
    message = f"Created the master of the job: StatefulSet {document['metadata']['name']}"
    job_context.report(job_context.resource, "Normal", "Created", message)
    return created


def _recreate_missing(job_context: ElasticJobContext, job: JobSpec) -> None:
    """Recreates deleted objects, except the Secret: running pods have read the old one and would reject the new."""
    for document in _find_missing(job_context, job, job_secrets.JobSecrets("")):
        name = f"{document['kind']} {document['metadata']['name']}"
        if document["kind"] == kinds.SECRET.kind:
            problem = f"{name} was deleted: no pod can join the job any more. Delete the job and create it again."
            job_context.conditions.append(job_status.not_applied_condition("SecretMissing", problem))
        else:
            _create_object(job_context, document)
            if document["metadata"]["name"] == naming.spec_name(job):
                # It owned the pods of workers and ps. Pods that the next master creates belong to the new one.
                job_context.api.delete(kinds.POD, f"{job_context.master_name}-0", job_context.namespace)
            job_context.report(job_context.resource, "Warning", "Recreated", f"{name} had been deleted")


def _find_missing(job_context: ElasticJobContext, job: JobSpec, secrets: job_secrets.JobSecrets) -> list[Document]:
    documents = manifest.job_objects(job, secrets, job_context.owner)
    return [
        document
        for document in documents
        if job_context.find_owned(kinds.kind_of(document), document["metadata"]["name"]) is None
    ]


def _create_object(job_context: ElasticJobContext, document: Document) -> Document:
    try:
        return job_context.api.create(_with_blocking_owners(document))
    except AlreadyExists as exc:
        existing = job_context.find_owned(kinds.kind_of(document), document["metadata"]["name"])
        if existing is None:
            name = f"{document['kind']} {document['metadata']['name']}"
            raise ObjectConflict(f"{name} existed and was deleted in the same moment") from exc
        return existing


def _with_blocking_owners(document: Document) -> Document:
    """Lets `kubectl delete --cascade=foreground` wait until the object is deleted."""
    metadata = document["metadata"]
    owners = [owner | {"blockOwnerDeletion": True} for owner in metadata["ownerReferences"]]
    return {**document, "metadata": {**metadata, "ownerReferences": owners}}


def _scale_master(job_context: ElasticJobContext, job: JobSpec, master: Document) -> Document:
    replicas = job_context.master_replicas
    if master["spec"]["replicas"] != replicas:
        name = master["metadata"]["name"]
        # The version makes the patch fail if the master has just ended: it must not be started again.
        change = {
            "metadata": {"resourceVersion": master["metadata"]["resourceVersion"]},
            "spec": {"replicas": replicas},
        }
        try:
            master = job_context.api.patch(kinds.STATEFUL_SET, name, change, job_context.namespace)
        except Conflict as exc:
            raise StillTerminating("the master changed at the same time") from exc
        reason, message = (
            ("Resumed", "spec.suspend is false: the job resumes")
            if replicas
            else ("Suspended", "spec.suspend is true: the pods of the job are deleted")
        )
        job_context.report(job_context.resource, "Normal", reason, message)
    if not replicas:
        _delete_replica_pods(job_context, job)
    return master


def _delete_replica_pods(job_context: ElasticJobContext, job: JobSpec) -> None:
    """Deletes the pods of workers and ps once the master has ended; while it runs it would replace them."""
    if job_context.api.list(kinds.POD, job_context.namespace, naming.label_selector(job, "master"))[0]:
        raise StillTerminating("the pod of the master is still terminating")
    for role in ("worker", "ps"):
        for pod in job_context.api.list(kinds.POD, job_context.namespace, naming.label_selector(job, role))[0]:
            metadata = pod["metadata"]
            if "deletionTimestamp" not in metadata:
                job_context.api.delete(kinds.POD, metadata["name"], job_context.namespace, uid=metadata["uid"])


def _write_status(
    job_context: ElasticJobContext,
    job: JobSpec | None,
    master: Document | None,
    result: Document | None,
    blocked_reason: str = "",
) -> None:
    """Writes the status if it changes, with a Warning for each new problem."""
    resource = job_context.resource
    while True:
        change = job_status.status_change(resource, job, master, job_context.conditions, _now(), blocked_reason, result)
        if not change:
            return
        _report_conditions(job_context, resource)
        version = {"resourceVersion": resource["metadata"]["resourceVersion"]}
        patch = {"metadata": version, "status": change}
        try:
            job_context.api.patch(kinds.ELASTIC_JOB, job_context.name, patch, job_context.namespace, "status")
            return
        except Conflict:  # the master wrote the status at the same time
            current = job_context.api.get(kinds.ELASTIC_JOB, job_context.name, job_context.namespace)
            if current is None or current["metadata"]["uid"] != resource["metadata"]["uid"]:
                return
            resource = current


def _report_conditions(job_context: ElasticJobContext, resource: Mapping[str, Any]) -> None:
    reported = {document["message"] for document in (resource.get("status") or {}).get("conditions", [])}
    for condition in job_context.conditions:
        if not condition.is_true and condition.message not in reported:
            job_context.report(job_context.resource, "Warning", condition.reason, condition.message)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
