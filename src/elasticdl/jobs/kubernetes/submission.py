"""Turns a resolved job into its objects on a cluster: rendered as YAML, dry-run by the server, or created."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import yaml

from elasticdl.errors import ElasticDLError, NameInUse
from elasticdl.jobs.interface import SubmissionReporter
from elasticdl.jobs.kubernetes import preflight
from elasticdl.jobs.lookup import connect_cluster
from elasticdl.kube.api import Api
from elasticdl.kube.errors import AlreadyExists, ApiUnavailable, NotFound
from elasticdl.kube.kinds import CONFIG_MAP, ROLE_BINDING, STATEFUL_SET, kind_of
from elasticdl.launcher.kubernetes import job_secrets, manifest
from elasticdl.launcher.kubernetes.manifest import Owner
from elasticdl.launcher.kubernetes.naming import PS, WORKER, cluster_spec, master_name, spec_name
from elasticdl.spec import JobSpec

Document = dict[str, Any]

REDACTED = "…"


def submit_to_cluster(spec: JobSpec, context: str, reporter: SubmissionReporter) -> tuple[Api, JobSpec]:
    """Creates the job's objects on the cluster. Returns the cluster, and the job with its namespace filled in."""
    preflight.check_spec(spec)
    api = connect_cluster(context)
    spec = with_namespace(spec, api)
    secrets = job_secrets.create_secrets(spec)
    preflight.check_cluster(api, spec, manifest.job_objects(spec, secrets, _master_owner(spec)))
    for warning in preflight.describe_ephemeral_paths(spec):
        reporter.warn(warning)
    create_objects(api, spec, secrets)
    return api, spec


def with_namespace(spec: JobSpec, api: Api) -> JobSpec:
    """The job with its namespace, by default that of the context."""
    cluster = cluster_spec(spec)
    resolved = cluster.model_copy(update={"namespace": cluster.namespace or api.namespace})
    return spec.model_copy(update={"cluster": resolved})


def _master_owner(spec: JobSpec, uid: str = REDACTED) -> Owner:
    return Owner(STATEFUL_SET.api_version, STATEFUL_SET.kind, master_name(spec), uid)


def job_manifests(spec: JobSpec, secrets: job_secrets.JobSecrets, owner: Owner) -> list[Document]:
    """All objects that a submission creates, in this order; the master creates the pods of workers and ps."""
    return [manifest.master_stateful_set(spec, None), *manifest.job_objects(spec, secrets, owner)]


def render_yaml(spec: JobSpec) -> str:
    """The objects as a stream of YAML with secrets redacted, followed by a pod of a worker and of a ps."""
    preflight.check_spec(spec)
    secrets = job_secrets.JobSecrets.placeholder(REDACTED, tls=cluster_spec(spec).tls)
    parts = [_to_yaml(document) for document in job_manifests(spec, secrets, _master_owner(spec))]
    for role, count in ((WORKER, spec.workers.replicas), (PS, spec.ps.replicas or 0)):
        if count:
            owner = Owner(CONFIG_MAP.api_version, CONFIG_MAP.kind, spec_name(spec), REDACTED)
            pod = manifest.replica_pod(spec, f"{role}-0", role, owner)
            parts.append(f"# created by the master: {role}-0 of {count}, and their replacements\n{_to_yaml(pod)}")
    return "---\n".join(parts)


def _to_yaml(document: Document) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


class DryRunVerdict(NamedTuple):
    """The API server's answer about one object. `is_refused` is False, too, if the object could not be checked."""

    label: str  # kind and name
    message: str
    is_refused: bool


def dry_run_on_server(spec: JobSpec, context: str) -> Iterator[DryRunVerdict]:
    """Lets the API server check every object of the job without keeping any."""
    preflight.check_spec(spec)
    api = connect_cluster(context)
    spec = with_namespace(spec, api)
    # Owners must have a uid, but the server does not check that it exists.
    owner = _master_owner(spec, "00000000-0000-0000-0000-000000000000")
    for document in job_manifests(spec, job_secrets.create_secrets(spec), owner):
        label = f"{document['kind']} {document['metadata']['name']}"
        try:
            api.create(document, dry_run=True)
            yield DryRunVerdict(label, "ok", is_refused=False)
        except ElasticDLError as exc:
            # A user who may not grant every right may bind only to an existing Role, and a dry run creates none.
            if isinstance(exc, NotFound) and document["kind"] == ROLE_BINDING.kind:
                yield DryRunVerdict(label, "not checked, because its Role does not exist yet", is_refused=False)
            else:
                yield DryRunVerdict(label, str(exc), is_refused=True)


def create_objects(api: Api, spec: JobSpec, secrets: job_secrets.JobSecrets) -> None:
    """Create the master's set without a pod, then the other objects, then scale the set to one. All or nothing."""
    with _all_or_nothing(api) as create:
        try:
            master = create(manifest.master_stateful_set(spec, None))
        except AlreadyExists as exc:
            raise NameInUse(f"job {spec.name!r} was created a moment ago; choose another --job_name") from exc
        for document in manifest.job_objects(spec, secrets, Owner.from_object(master)):
            create(document)
        api.patch(STATEFUL_SET, master_name(spec), {"spec": {"replicas": 1}}, cluster_spec(spec).namespace)


@contextmanager
def _all_or_nothing(api: Api) -> Iterator[Callable[[Document], Document]]:
    """A `create` whose objects are deleted again if the block fails: by an error, or by Ctrl-C."""
    created: list[Document] = []
    interrupts: list[int] = []

    def create(document: Document) -> Document:
        if interrupts:
            raise KeyboardInterrupt
        try:
            created.append(api.create(document))
        except ApiUnavailable:
            created.append(document)  # it may have been created
            raise
        return created[-1]

    # Interrupts take effect between two calls, never within one, so that it is known what was created.
    signal_numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {
        number: signal.signal(number, lambda interrupt, _: interrupts.append(interrupt)) for number in signal_numbers
    }
    try:
        yield create
        if interrupts:
            raise KeyboardInterrupt
    except BaseException:
        for document in reversed(created):
            metadata = document["metadata"]
            with suppress(ElasticDLError):
                api.delete(kind_of(document), metadata["name"], metadata["namespace"], uid=metadata.get("uid", ""))
        raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
