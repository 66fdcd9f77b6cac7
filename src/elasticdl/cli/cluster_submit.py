"""From a resolved job to its objects on a cluster: shown, judged by the API server, or made and let go."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click
import yaml

from elasticdl.cli import cluster_check
from elasticdl.cli.place import connect
from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.kube.api import Api
from elasticdl.kube.errors import AlreadyThere, ApiAway, NotThere
from elasticdl.kube.kinds import CONFIG_MAP, ROLE_BINDING, STATEFUL_SET, of
from elasticdl.launcher import certificates, manifest
from elasticdl.launcher.manifest import Owner
from elasticdl.launcher.naming import PS, WORKER, cluster_of, master_name, spec_name
from elasticdl.spec import JobSpec

if TYPE_CHECKING:
    from elasticdl.cli.submit import Manner

Document = dict[str, Any]

HIDDEN = "…"


def submit(spec: JobSpec, manner: Manner) -> int:
    """What the person asked for; the exit code of the job, or of the command."""
    cluster_check.check_description(spec)
    if manner.yaml:
        click.echo(shown(spec), nl=False)
        return 0
    api = connect(manner.context)
    spec = placed(spec, api)
    if manner.dry_run == "server":
        return judge(api, spec)
    secrets = certificates.make(spec)
    cluster_check.check(api, spec, manifest.belongings(spec, secrets, _owner(spec)))
    for said in cluster_check.fleeting(spec):
        click.echo(f"note: {said}", err=True)
    make(api, spec, secrets)
    return _stay(api, spec, manner)


def placed(spec: JobSpec, api: Api) -> JobSpec:
    """The job in a namespace: its own, or that of the context."""
    cluster = cluster_of(spec)
    found = cluster.model_copy(update={"namespace": cluster.namespace or api.namespace})
    return spec.model_copy(update={"cluster": found})


def _owner(spec: JobSpec, uid: str = HIDDEN) -> Owner:
    return Owner(STATEFUL_SET.version, STATEFUL_SET.kind, master_name(spec), uid)


def objects(spec: JobSpec, secrets: certificates.JobSecrets, owner: Owner) -> list[Document]:
    """All that is made here, in this order; the pods of workers and ps are made by the master."""
    return [manifest.master_set(spec, None), *manifest.belongings(spec, secrets, owner)]


def shown(spec: JobSpec) -> str:
    """The objects as a stream of YAML, nothing secret in it; then a worker and a ps, as the master will make them."""
    secrets = certificates.JobSecrets.hidden(HIDDEN, tls=cluster_of(spec).tls)
    parts = [_text(one) for one in objects(spec, secrets, _owner(spec))]
    for role, count in ((WORKER, spec.workers.wish), (PS, spec.ps.wish or 0)):
        if count:
            owner = Owner(CONFIG_MAP.version, CONFIG_MAP.kind, spec_name(spec), HIDDEN)
            pod = manifest.replica_pod(spec, f"{role}-0", role, owner)
            parts.append(f"# made by the master: {role}-0 of {count}, and those that replace them\n{_text(pod)}")
    return "---\n".join(parts)


def _text(document: Document) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def judge(api: Api, spec: JobSpec) -> int:
    """Let the API server check every object without keeping any; its words for each, and 1 if it refuses one."""
    refused = 0
    # Owners must have a uid; nobody looks whether it exists.
    for one in objects(spec, certificates.make(spec), _owner(spec, "00000000-0000-0000-0000-000000000000")):
        label = f"{one['kind']} {one['metadata']['name']}"
        try:
            api.create(one, dry_run=True)
            click.echo(f"{label}: ok")
        except ElasticDLError as exc:
            # Who may not grant everything may bind only to a Role that is there, which no dry run makes.
            is_unknown = isinstance(exc, NotThere) and one["kind"] == ROLE_BINDING.kind
            refused += not is_unknown
            click.echo(f"{label}: not judged, its Role is not there yet" if is_unknown else f"{label}: {exc}")
    return 1 if refused else 0


def make(api: Api, spec: JobSpec, secrets: certificates.JobSecrets) -> None:
    """Make the master's set, without a pod, what belongs to it, then let it go. All or nothing, whatever happens."""
    with _all_or_nothing(api) as create:
        try:
            master = create(manifest.master_set(spec, None))
        except AlreadyThere as exc:
            raise SpecError(f"job {spec.name!r} was created a moment ago; choose another --job_name") from exc
        for one in manifest.belongings(spec, secrets, Owner.of(master)):
            create(one)
        api.patch(STATEFUL_SET, master_name(spec), {"spec": {"replicas": 1}}, cluster_of(spec).namespace)


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
        except ApiAway:
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
                api.delete(of(one), metadata["name"], metadata["namespace"], uid=metadata.get("uid", ""))
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stay(api: Api, spec: JobSpec, manner: Manner) -> int:
    from rich.console import Console

    from elasticdl.cli import attach, cluster_watch, submit

    namespace = cluster_of(spec).namespace
    where = f"in namespace {namespace} of context {api.context or 'this pod'}"
    if manner.detach:
        click.echo(submit.farewell(spec.name, where))
        return 0
    console = Console()
    console.print(f"job {spec.name} {where}", highlight=False, markup=False, soft_wrap=True)
    with cluster_watch.watched(api, namespace, spec.name) as watched:
        return attach.attach(watched, console)
