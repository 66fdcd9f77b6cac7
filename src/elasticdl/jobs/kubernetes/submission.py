"""From a resolved job to its objects on a cluster: rendered as YAML, dry-run by the server, or created."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click
import yaml

from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.jobs.kubernetes import preflight
from elasticdl.jobs.lookup import connect_cluster
from elasticdl.kube.api import Api
from elasticdl.kube.errors import AlreadyExists, ApiUnavailable, NotFound
from elasticdl.kube.kinds import CONFIG_MAP, ROLE_BINDING, STATEFUL_SET, kind_of
from elasticdl.launcher.kubernetes import job_secrets, manifest
from elasticdl.launcher.kubernetes.manifest import Owner
from elasticdl.launcher.kubernetes.naming import PS, WORKER, cluster_spec, master_name, spec_name
from elasticdl.spec import JobSpec

if TYPE_CHECKING:
    from elasticdl.cli.submit import SubmitOptions

Document = dict[str, Any]

REDACTED = "…"


def submit_to_cluster(spec: JobSpec, manner: SubmitOptions) -> int:
    """What the person asked for; the exit code of the job, or of the command."""
    preflight.check_spec(spec)
    if manner.yaml:
        click.echo(render_yaml(spec), nl=False)
        return 0
    api = connect_cluster(manner.context)
    spec = with_namespace(spec, api)
    if manner.dry_run == "server":
        return dry_run_on_server(api, spec)
    secrets = job_secrets.create_secrets(spec)
    preflight.check_cluster(api, spec, manifest.job_objects(spec, secrets, _master_owner(spec)))
    for said in preflight.describe_ephemeral_paths(spec):
        click.echo(f"note: {said}", err=True)
    create_objects(api, spec, secrets)
    return _attach_or_detach(api, spec, manner)


def with_namespace(spec: JobSpec, api: Api) -> JobSpec:
    """The job in a namespace: its own, or that of the context."""
    cluster = cluster_spec(spec)
    found = cluster.model_copy(update={"namespace": cluster.namespace or api.namespace})
    return spec.model_copy(update={"cluster": found})


def _master_owner(spec: JobSpec, uid: str = REDACTED) -> Owner:
    return Owner(STATEFUL_SET.api_version, STATEFUL_SET.kind, master_name(spec), uid)


def job_manifests(spec: JobSpec, secrets: job_secrets.JobSecrets, owner: Owner) -> list[Document]:
    """All that is made here, in this order; the pods of workers and ps are made by the master."""
    return [manifest.master_stateful_set(spec, None), *manifest.job_objects(spec, secrets, owner)]


def render_yaml(spec: JobSpec) -> str:
    """The objects as a stream of YAML, nothing secret in it; then a worker and a ps, as the master will make them."""
    secrets = job_secrets.JobSecrets.placeholder(REDACTED, tls=cluster_spec(spec).tls)
    parts = [_to_yaml(one) for one in job_manifests(spec, secrets, _master_owner(spec))]
    for role, count in ((WORKER, spec.workers.wish), (PS, spec.ps.wish or 0)):
        if count:
            owner = Owner(CONFIG_MAP.api_version, CONFIG_MAP.kind, spec_name(spec), REDACTED)
            pod = manifest.replica_pod(spec, f"{role}-0", role, owner)
            parts.append(f"# made by the master: {role}-0 of {count}, and those that replace them\n{_to_yaml(pod)}")
    return "---\n".join(parts)


def _to_yaml(document: Document) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def dry_run_on_server(api: Api, spec: JobSpec) -> int:
    """Let the API server check every object without keeping any; its words for each, and 1 if it refuses one."""
    refused = 0
    # Owners must have a uid; nobody looks whether it exists.
    for one in job_manifests(
        spec, job_secrets.create_secrets(spec), _master_owner(spec, "00000000-0000-0000-0000-000000000000")
    ):
        label = f"{one['kind']} {one['metadata']['name']}"
        try:
            api.create(one, dry_run=True)
            click.echo(f"{label}: ok")
        except ElasticDLError as exc:
            # Who may not grant everything may bind only to a Role that is there, which no dry run makes.
            is_unknown = isinstance(exc, NotFound) and one["kind"] == ROLE_BINDING.kind
            refused += not is_unknown
            click.echo(f"{label}: not judged, its Role is not there yet" if is_unknown else f"{label}: {exc}")
    return 1 if refused else 0


def create_objects(api: Api, spec: JobSpec, secrets: job_secrets.JobSecrets) -> None:
    """Make the master's set, without a pod, what belongs to it, then let it go. All or nothing, whatever happens."""
    with _all_or_nothing(api) as create:
        try:
            master = create(manifest.master_stateful_set(spec, None))
        except AlreadyExists as exc:
            raise SpecError(f"job {spec.name!r} was created a moment ago; choose another --job_name") from exc
        for one in manifest.job_objects(spec, secrets, Owner.from_object(master)):
            create(one)
        api.patch(STATEFUL_SET, master_name(spec), {"spec": {"replicas": 1}}, cluster_spec(spec).namespace)


@contextmanager
def _all_or_nothing(api: Api) -> Iterator[Callable[[Document], Document]]:
    """A `create` whose objects are deleted again if the block fails: by an error, or by Ctrl-C."""
    made: list[Document] = []
    interrupts: list[int] = []

    def create(document: Document) -> Document:
        if interrupts:
            raise KeyboardInterrupt
        try:
            made.append(api.create(document))
        except ApiUnavailable:
            made.append(document)  # nobody knows whether it was made
            raise
        return made[-1]

    # Between two calls, never within one: what was asked for is known when its answer is.
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda heard, _: interrupts.append(heard)) for number in numbers}
    try:
        yield create
        if interrupts:
            raise KeyboardInterrupt
    except BaseException:
        for one in reversed(made):
            metadata = one["metadata"]
            with suppress(ElasticDLError):
                api.delete(kind_of(one), metadata["name"], metadata["namespace"], uid=metadata.get("uid", ""))
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _attach_or_detach(api: Api, spec: JobSpec, manner: SubmitOptions) -> int:
    from rich.console import Console

    from elasticdl.cli import attach, submit
    from elasticdl.jobs.kubernetes import cluster_job

    namespace = cluster_spec(spec).namespace
    where = f"in namespace {namespace} of context {api.context or 'this pod'}"
    if manner.detach:
        click.echo(submit.detached_message(spec.name, where))
        return 0
    console = Console()
    console.print(f"job {spec.name} {where}", highlight=False, markup=False, soft_wrap=True)
    with cluster_job.watch_cluster_job(api, namespace, spec.name) as watched:
        return attach.attach_terminal(watched, console)
