"""Submits jobs: what `elasticdl.submit` and the verbs train, run, evaluate and predict have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from elasticdl.errors import SpecError
from elasticdl.jobs import queueing, submission
from elasticdl.jobs.description import VERB_OF_KIND, JobRequest
from elasticdl.jobs.interface import SubmissionReporter
from elasticdl.jobs.job import Job
from elasticdl.jobs.options import check_option_names
from elasticdl.jobs.submission import ResolvedJob
from elasticdl.spec import JobKind, JobSpec, load
from elasticdl.spelling import did_you_mean

if TYPE_CHECKING:
    from elasticdl.jobs.submission_options import SubmissionOptions


def resolve_job(
    description: Path | Mapping[str, Any] | None,
    request: JobRequest,
    reporter: SubmissionReporter,
    *,
    is_preview: bool = False,
) -> ResolvedJob:
    """Resolves a job file, a ctr.yaml, a mapping or options alone. Builds the directory of a ctr.yaml.

    `request` holds all but the document and the queue, which is an option. With `is_preview` the job is not going to
    be launched, and the framework of its model need not be installed.
    """
    from elasticdl.ctr import config_job

    file = description if isinstance(description, Path) else None
    document: Mapping[str, Any] = {}
    if isinstance(description, Path):
        document = load.read_yaml_file(description)
    elif description is not None:
        document = description
    is_config = config_job.is_ctr_config(document)
    options = dict(request.options)
    queue = queueing.pop_queue_option(options, document.get("job") or {} if is_config else document, request.on)
    if file is not None and is_config:
        if not (is_preview or options.get("image_name") or (document.get("job") or {}).get("cluster")):
            config_job.check_model_framework(document, request.kind)  # before the analysis, which may take minutes
        document = config_job.job_document(file, document, request.kind, options.get("ps_mode"), reporter)
    request = replace(request, document=document, options=options, file=file, queue=queue)
    return replace(submission.resolve_request(request), config_file=file if is_config else None)


def submit(
    job: str | PathLike[str] | Mapping[str, Any] | JobSpec | None = None,
    /,
    *,
    kind: JobKind | str | None = None,
    on: str | None = None,
    context: str | None = None,
    queue: str | None = None,
    priority: int | None = None,
    **options: Unpack[SubmissionOptions],
) -> Job:
    """Submits a job and returns it as soon as its master has accepted it. The job then runs on by itself.

    Three lines train a model:

        import elasticdl

        job = elasticdl.submit("job.yaml", num_workers=4)
        print(job.wait().metrics)

    `job` is the path of a job.yaml or ctr.yaml, a mapping of the same form, a JobSpec, or None if the options say it
    all. `options` are those of the command line: an option counts more than the file, the file more than the default.
    `kind` is training, evaluation, prediction or script; by default what the file says, else script if the option
    `script` is given, else training. `on` is "local" or "kubernetes", `context` a context of the kubeconfig.

    With `queue` (a name, or "" for the default queue), the job waits for this machine's scheduler; `priority` is its
    priority there. On Kubernetes, `queue` is a queue of Kueue.

    Raises SpecError for a wrong option or description, NameInUse for a name that another job has, and NoCluster for a
    cluster that is not there.
    """
    description = _load_description(job)
    job_kind = _choose_kind(kind, description, has_script=options.get("script") is not None)
    check_option_names(options, VERB_OF_KIND[job_kind])
    request = JobRequest(
        job_kind, {}, {**options, "queue": queue}, on=on or "", context=context or "", priority=priority
    )
    return launch(resolve_job(description, request, SubmissionReporter()), SubmissionReporter())


def launch(job: ResolvedJob, reporter: SubmissionReporter) -> Job:
    """Launches a resolved job that runs on by itself."""
    return Job(submission.launch_job(job, reporter))


def _load_description(job: str | PathLike[str] | Mapping[str, Any] | JobSpec | None) -> Path | Mapping[str, Any] | None:
    if isinstance(job, JobSpec):
        return job.model_dump(mode="json", exclude_none=True)
    if job is None or isinstance(job, Mapping):
        return job
    if isinstance(job, str | PathLike):
        return Path(job)
    expected = "the path of a YAML file, a mapping, a JobSpec or None"
    raise SpecError(f"submit: expected {expected}; received {type(job).__name__}")


def _choose_kind(
    kind: JobKind | str | None, description: Path | Mapping[str, Any] | None, *, has_script: bool
) -> JobKind:
    if kind is None and description is not None:
        document = load.read_yaml_file(description) if isinstance(description, Path) else description
        kind = document.get("kind")
    if kind is None:
        return JobKind.SCRIPT if has_script else JobKind.TRAINING
    kinds = [job_kind.value for job_kind in JobKind]
    if kind not in kinds:
        near = did_you_mean(str(kind), kinds)
        raise SpecError(f"kind: expected {', '.join(kinds)}; received {kind!r}{near}")
    return JobKind(kind)
