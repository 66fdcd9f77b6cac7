"""Where a job is: on this machine, or in a namespace of a cluster. Found by its name, or by what the person says."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elasticdl.cli import home
from elasticdl.cli.command import Decorated, nearest
from elasticdl.cli.interface import Job
from elasticdl.cli.local_job import LocalJob
from elasticdl.errors import ElasticDLError, SpecError

if TYPE_CHECKING:
    from elasticdl.kube.api import Api

LOCAL, KUBERNETES = "local", "kubernetes"
PLACES = (LOCAL, KUBERNETES)

_POD_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@dataclass(frozen=True, slots=True)
class Place:
    """What the person says about where to look; "" is nothing."""

    on: str = ""
    namespace: str = ""
    context: str = ""

    @property
    def may_be_here(self) -> bool:
        return self.on != KUBERNETES and not (self.namespace or self.context)

    @property
    def must_be_here(self) -> bool:
        return self.on == LOCAL


def on_option(help_text: str, **more: Any) -> Callable[[Decorated], Decorated]:
    return click.option("--on", type=click.Choice(PLACES), default=None, help=help_text, **more)


def place_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--on, --namespace and --context, handed on as `place`."""

    @functools.wraps(function)
    def with_place(*, on: str | None, namespace: str | None, context: str | None, **values: Any) -> Any:
        if on == LOCAL and (namespace or context):
            raise click.UsageError("--namespace and --context are of Kubernetes; leave out --on local")
        return function(place=Place(on or "", namespace or "", context or ""), **values)

    for option in (
        click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: the current one."),
        click.option("--namespace", "-n", metavar="NAME", help="Namespace. Default: that of the context."),
        on_option("Where the job is. Default: this machine; else the cluster, if it is there."),
    ):
        with_place = option(with_place)
    return with_place


def has_cluster() -> bool:
    """Whether a cluster is configured at all; cheap, and needs no Kubernetes client."""
    files = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    return any(Path(file).is_file() for file in files.split(os.pathsep) if file) or _POD_TOKEN.exists()


def connect(context: str = "", **more: Any) -> Api:
    """The API of the cluster meant, `more` as for `Api.connect`; NoCluster with the fix where there is none."""
    try:
        from elasticdl.kube.api import Api

        return Api.connect(context, **more)
    except ModuleNotFoundError as exc:
        raise SpecError(
            f"Kubernetes: the package {exc.name!r} is not installed; pip install 'elasticdl[kubernetes]'"
        ) from exc


def find(name: str, place: Place) -> Job:
    """The job called `name`; an error that says where it was looked for, with the nearest name."""
    is_name = bool(name) and "/" not in name and name not in (".", "..")
    if place.may_be_here and (place.must_be_here or not is_name or home.directory_of(name).spec.exists()):
        return LocalJob(home.find(name))
    if not is_name:
        raise SpecError(f"no job {name!r}: a name has letters, digits and '-'")
    if place.may_be_here and not has_cluster():
        return LocalJob(home.find(name))
    try:
        return _on_cluster(name, place)
    except ElasticDLError as exc:
        if not place.may_be_here:
            raise
        # Neither here nor there: the person hears of both.
        raise SpecError(f"no job {name!r} in {home.jobs_directory()}{nearest(name, home.names())}; and {exc}") from exc


def _on_cluster(name: str, place: Place) -> Job:
    from elasticdl.cli import cluster_job

    api = connect(place.context)
    return cluster_job.find(api, place.namespace or api.namespace, name)
