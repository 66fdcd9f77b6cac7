"""Finds a job by its name, on this machine or in a namespace of a cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.errors import ElasticDLError, JobNotFound, SpecError
from elasticdl.extras import install_command
from elasticdl.jobs import home
from elasticdl.jobs.home import LAST, resolve_name
from elasticdl.jobs.interface import JobBackend
from elasticdl.spelling import did_you_mean

if TYPE_CHECKING:
    from elasticdl.kube.api import Api

LOCAL, KUBERNETES = "local", "kubernetes"
PLACES = (LOCAL, KUBERNETES)

_POD_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@dataclass(frozen=True, slots=True)
class JobLocation:
    """What the person says about where to look; "" is nothing."""

    on: str = ""
    namespace: str = ""
    context: str = ""

    @property
    def may_be_local(self) -> bool:
        return self.on != KUBERNETES and not (self.namespace or self.context)

    @property
    def must_be_local(self) -> bool:
        return self.on == LOCAL


def is_cluster_configured() -> bool:
    """Whether a cluster is configured at all; cheap, and needs no Kubernetes client."""
    files = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    return any(Path(file).is_file() for file in files.split(os.pathsep) if file) or _POD_TOKEN.exists()


def connect_cluster(context: str = "", **more: Any) -> Api:
    """The API of the cluster meant, `more` as for `Api.connect`; NoCluster with the fix where there is none."""
    try:
        from elasticdl.kube.api import Api

        return Api.connect(context, **more)
    except ModuleNotFoundError as exc:
        raise SpecError(
            f"Kubernetes: the package {exc.name!r} is not installed; {install_command('kubernetes')}"
        ) from exc


def find_job(word: str, place: JobLocation) -> JobBackend:
    """The job that `word` means: see `resolve_name`. An error says where it was looked for, with the nearest name.

    A whole name counts more than a prefix, wherever the job is; `last` is the newest job of this machine if it has any.
    """
    from elasticdl.jobs.local import LocalJob

    is_name = bool(word) and "/" not in word and word not in (".", "..")
    here = home.job_names() if place.may_be_local else []
    is_last = word == LAST and bool(here)
    if place.may_be_local and (
        place.must_be_local or not is_name or word in here or is_last or not is_cluster_configured()
    ):
        return LocalJob(home.find_directory(word))
    if not is_name:
        raise SpecError(f"no job {word!r}: a name has letters, digits and '-'")
    try:
        return _find_on_cluster(word, place, here)
    except ElasticDLError as exc:
        if not place.may_be_local:
            raise
        if resolve_name(word, here):
            return LocalJob(home.find_directory(word))
        # Neither here nor there: the user hears of both.
        raise JobNotFound(f"no job {word!r} in {home.jobs_directory()}{did_you_mean(word, here)}; and {exc}") from exc


def _find_on_cluster(word: str, place: JobLocation, here: Sequence[str]) -> JobBackend:
    """By its whole name; else by its prefix, unless that is one of a job of this machine, which are `here`."""
    from elasticdl.jobs.kubernetes import cluster_job

    api = connect_cluster(place.context)
    namespace = place.namespace or api.namespace
    try:
        return cluster_job.find_cluster_job(api, namespace, word)
    except SpecError:
        if resolve_name(word, here):
            raise
        name = resolve_name(word, [job.name for job in cluster_job.list_cluster_jobs(api, namespace)])
        if name is None:
            raise
        return cluster_job.find_cluster_job(api, namespace, name)
