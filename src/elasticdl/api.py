"""Submits jobs: what `elasticdl.submit` and the verbs train, run, evaluate and predict have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl.jobs import queueing, submission
from elasticdl.jobs.reporter import SubmissionReporter
from elasticdl.spec import JobKind, JobSpec, load


@dataclass(frozen=True, slots=True)
class ResolvedJob:
    """A job that is ready to be launched."""

    spec: JobSpec
    queue: str | None  # of this machine's scheduler; "": its default queue; None: the job starts at once
    is_ctr_config: bool  # whether it comes from a ctr.yaml


def resolve_job(
    description: Path | Mapping[str, Any] | None,
    kind: JobKind,
    options: dict[str, Any],
    *,
    extra: Mapping[str, Any] | None = None,
    on: str = "",
    priority: int | None = None,
    is_preview: bool = False,
    reporter: SubmissionReporter,
) -> ResolvedJob:
    """Resolves a job file, a ctr.yaml, a mapping or options alone. Builds the directory of a ctr.yaml.

    `extra` is a document that counts more than the options. With `is_preview` the job is not going to be launched, and
    the framework of its model need not be installed.
    """
    from elasticdl.ctr import config_job

    file = description if isinstance(description, Path) else None
    document: Mapping[str, Any] = {}
    if isinstance(description, Path):
        document = load.read_yaml_file(description)
    elif description is not None:
        document = description
    is_config = config_job.is_ctr_config(document)
    options = dict(options)
    queue = queueing.pop_queue_option(options, document.get("job") or {} if is_config else document, on)
    if file is not None and is_config:
        if not (is_preview or options.get("image_name") or (document.get("job") or {}).get("cluster")):
            config_job.check_model_framework(document, kind)  # before the analysis, which may take minutes
        document = config_job.job_document(file, document, kind, options.get("ps_mode"), reporter)
    source = submission.SubmissionSource(kind, document, options, file, extra or {}, on, queue, priority)
    return ResolvedJob(submission.resolve_submission(source), queue, is_config)
