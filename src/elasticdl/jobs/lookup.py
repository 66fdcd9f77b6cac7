"""Finds a job by its name, on this machine or in a namespace of a cluster."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

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

CLUSTER_TIMEOUT_S = 2.0  # a cluster that has not answered by then is left out of a list
_POD_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class LocationOptions(TypedDict):
    """The options --on, --namespace and --context; None: not given."""

    on: str | None
    namespace: str | None
    context: str | None


@dataclass(frozen=True, slots=True)
class JobLocation:
    """Where the user wants to look for a job; "": not said."""

    on: str = ""
    namespace: str = ""
    context: str = ""

    @classmethod
    def from_options(cls, on: str | None, namespace: str | None, context: str | None) -> JobLocation:
        """Checks the options --on, --namespace and --context; None: not given."""
        if on not in (None, "", LOCAL, KUBERNETES):
            near = did_you_mean(on, PLACES)
            raise SpecError(f"--on: expected {LOCAL} or {KUBERNETES}; received {on!r}{near}")
        if on == LOCAL and (namespace or context):
            raise SpecError("--namespace and --context are of Kubernetes; leave out --on local")
        return cls(on or "", namespace or "", context or "")

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
    """Connects to the API of a cluster, with `more` for `Api.connect`. NoCluster, with the fix, if there is none."""
    try:
        from elasticdl.kube.api import Api

        return Api.connect(context, **more)
    except ModuleNotFoundError as exc:
        raise SpecError(
            f"Kubernetes: the package {exc.name!r} is not installed; {install_command('kubernetes')}"
        ) from exc


def find_job(word: str, location: JobLocation) -> JobBackend:
    """The job that `word` means: see `resolve_name`. An error says where it was looked for, with the nearest name.

    A whole name counts more than a prefix, wherever the job is; `last` is the newest job of this machine if it has any.
    """
    from elasticdl.jobs.local import LocalJob

    is_name = bool(word) and "/" not in word and word not in (".", "..")
    here = home.job_names() if location.may_be_local else []
    is_last = word == LAST and bool(here)
    if location.may_be_local and (
        location.must_be_local or not is_name or word in here or is_last or not is_cluster_configured()
    ):
        return LocalJob(home.find_directory(word))
    if not is_name:
        raise SpecError(f"no job {word!r}: a name has letters, digits and '-'")
    try:
        return _find_on_cluster(word, location, here)
    except ElasticDLError as exc:
        if not location.may_be_local:
            raise
        if resolve_name(word, here):
            return LocalJob(home.find_directory(word))
        # Neither here nor there: the user hears of both.
        raise JobNotFound(f"no job {word!r} in {home.jobs_directory()}{did_you_mean(word, here)}; and {exc}") from exc


def _find_on_cluster(word: str, location: JobLocation, here: Sequence[str]) -> JobBackend:
    """By its whole name; else by its prefix, unless that is one of a job of this machine, which are `here`."""
    from elasticdl.jobs.kubernetes import cluster_job

    api = connect_cluster(location.context)
    namespace = location.namespace or api.namespace
    try:
        return cluster_job.find_cluster_job(api, namespace, word)
    except SpecError:
        if resolve_name(word, here):
            raise
        name = resolve_name(word, [job.name for job in cluster_job.list_cluster_jobs(api, namespace)])
        if name is None:
            raise
        return cluster_job.find_cluster_job(api, namespace, name)


def list_jobs(location: JobLocation, warn: Callable[[str], None]) -> list[JobBackend]:
    """The jobs of this machine, and of the cluster if one is configured, the newest of each last."""
    from elasticdl.jobs.local import LocalJob

    jobs: list[JobBackend] = []
    if location.may_be_local:
        jobs += [LocalJob(home.job_directory(name)) for name in home.job_names()]
    if not location.must_be_local and (is_cluster_configured() or not location.may_be_local):
        jobs += _list_on_cluster(location, warn)
    return jobs


def _list_on_cluster(location: JobLocation, warn: Callable[[str], None]) -> list[JobBackend]:
    """The jobs of the cluster. Warns instead if it does not answer and the user did not ask for it."""
    jobs: list[JobBackend] = []
    problems: list[ElasticDLError] = []

    def ask() -> None:
        from elasticdl.jobs.kubernetes import cluster_job

        try:
            api = connect_cluster(location.context)
            jobs.extend(cluster_job.list_cluster_jobs(api, location.namespace or api.namespace))
        except ElasticDLError as exc:
            problems.append(exc)

    if location.on == KUBERNETES or not location.may_be_local:
        ask()
        if problems:
            raise problems[0]
        return jobs
    # A thread of its own: whatever the way to the cluster hangs on, the list of this machine does not wait for it.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(CLUSTER_TIMEOUT_S)
    if asking.is_alive():
        warn(f"the cluster did not answer within {CLUSTER_TIMEOUT_S:.0f} s; its jobs are left out")
        return []
    for problem in problems:
        warn(f"without the jobs of the cluster: {problem}")
    return jobs
