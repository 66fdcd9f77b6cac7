"""Merges options, job file, earlier run and defaults into one resolved job, and names it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

from elasticdl.errors import SpecError
from elasticdl.jobs.lookup import KUBERNETES
from elasticdl.jobs.lookup import LOCAL as LOCAL_PLACE
from elasticdl.jobs.options import LOCAL_STRATEGY, STRATEGY_NAMES, parse_options, pop_script_document
from elasticdl.spec import JobKind, JobSpec, Strategy, load, options
from elasticdl.spec.directory import JobDirectory
from elasticdl.spec.job import NAME_PATTERN
from elasticdl.spelling import did_you_mean

_SUFFIX_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that look alike


def generate_name(stem: str, now: datetime, random: Random, is_taken: Callable[[str], bool]) -> str:
    """Generates a name such as mnist-20261115-1307-x3, which is short enough for a job on a cluster, too."""
    label = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:32].strip("-") or "job"
    while True:
        name = f"{label}-{now:%Y%m%d-%H%M}-{random.choice(_SUFFIX_LETTERS)}{random.choice(_SUFFIX_LETTERS)}"
        if not is_taken(name):
            assert NAME_PATTERN.fullmatch(name), name
            return name


def name_stem(document: dict[str, Any]) -> str:
    """The first part of a generated name: the name of the model file or of the script."""
    definition = (document.get("model") or {}).get("definition")
    if isinstance(definition, str) and definition:
        parts = definition.split(".")
        return parts[-2] if len(parts) > 1 else parts[0]
    path = (document.get("script") or {}).get("path")
    return str(path).rpartition("/")[2].removesuffix(".py") if path else "job"


VERB_OF_KIND = {
    JobKind.TRAINING: "train",
    JobKind.EVALUATION: "evaluate",
    JobKind.PREDICTION: "predict",
    JobKind.SCRIPT: "run",
}

ZOO_IN_IMAGE = "model_zoo"


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a user asks for: a document, which may come from `file`, options by name, and where the job is to run."""

    kind: JobKind
    document: Mapping[str, Any]
    options: Mapping[str, Any]
    file: Path | None = None  # relative paths of the document are meant from its directory
    on: str = ""  # local or kubernetes; "": as the document says
    context: str = ""  # of the kubeconfig
    queue: str | None = None  # of this machine's scheduler; "": its default queue; None: the job starts at once
    priority: int | None = None  # in that queue
    defaults: Mapping[str, Any] = field(default_factory=dict)  # for what neither the request nor an earlier run says


@dataclass(frozen=True, slots=True)
class DescriptionContext:
    """What `describe_job` needs to know beside the request. It reads no clock and no environment itself."""

    working_directory: Path
    now: datetime
    random: Random
    directory_of: Callable[[str], JobDirectory]
    find_name: Callable[[str], str]  # the whole name of a job to resume, which may be given by its prefix


def describe_job(request: JobRequest, context: DescriptionContext) -> JobSpec:
    """Resolves a request into a job: an option counts more than the document, the document more than the defaults.

    A resumed job takes what the request does not say from its own earlier description.
    """
    kind, on, file, from_file = request.kind, request.on, request.file, request.document
    values = dict(request.options)
    script_document = pop_script_document(values) if kind is JobKind.SCRIPT else {}
    parsed = parse_options(values)
    if isinstance(parsed.get("log_level"), str):
        parsed["log_level"] = parsed["log_level"].upper()
    from_options = load.merge_documents(options.options_document(parsed), script_document)
    if on == LOCAL_PLACE:
        _refuse_cluster_options(from_options)
        from_file = {key: value for key, value in from_file.items() if key != "cluster"}
    document = load.merge_documents(from_file, from_options)
    if _is_resumed_by_name(document):
        document["name"] = from_options["name"] = context.find_name(str(document["name"]))
    if on == KUBERNETES and not _section(document, "cluster").get("image"):
        raise SpecError(
            "--on kubernetes: which image? Name the one that holds the model with --image_name, or as cluster.image"
        )
    is_on_cluster = bool(document.get("cluster"))
    # A job of this machine of the same name is another job.
    earlier = {} if is_on_cluster else _earlier_description(document, context.directory_of)
    file_directory = file.absolute().parent if file else context.working_directory
    # Paths of a job on a cluster are meant inside its image.
    if not is_on_cluster:
        if _section(document, "data").get("format") == "python":
            from_options.setdefault("data", {}).setdefault("format", "python")
        from_file = load.make_paths_absolute(from_file, file_directory)
        from_options = load.make_paths_absolute(from_options, context.working_directory)
        document = load.merge_documents(from_file, from_options)
    document = load.merge_documents(
        document, _strategy_document(values.get("distribution_strategy"), document, from_options)
    )
    if document.setdefault("kind", kind.value) != kind.value:
        verb = VERB_OF_KIND.get(document["kind"], "another command")
        raise SpecError(
            f"kind: {document['kind']!r} is not for `elasticdl {VERB_OF_KIND[kind]}`; use `elasticdl {verb}`"
        )
    if earlier and earlier["kind"] != kind.value:
        verb = VERB_OF_KIND[earlier["kind"]]
        can_resume = verb in (VERB_OF_KIND[JobKind.TRAINING], VERB_OF_KIND[JobKind.SCRIPT])
        fix = f"use `elasticdl {verb} --resume --job_name={document['name']}`" if can_resume else "start it again"
        raise SpecError(f"--resume: {document['name']!r} is a job of `elasticdl {verb}`; {fix}")
    document = load.merge_documents(load.merge_documents(request.defaults, earlier), document)
    if isinstance(document.get("model"), dict):
        document["model"].setdefault("zoo", ZOO_IN_IMAGE if is_on_cluster else str(file_directory))
    if not document.get("name"):
        if _section(document, "checkpoint").get("resume") and not _section(document, "checkpoint").get("directory"):
            raise SpecError(
                "--resume: which job? Give its --job_name (`last` is the newest), or the --checkpoint_dir to go on from"
            )
        stem = name_stem({key: _section(document, key) for key in ("model", "script")})
        document["name"] = generate_name(
            stem, context.now, context.random, lambda name: context.directory_of(name).root.exists()
        )
    return load.resolve_job(document, str(file) if file else "")


def _refuse_cluster_options(from_options: dict[str, Any]) -> None:
    """Refuses options for a cluster, which would be ignored. A file for a cluster may be tried here."""
    flags = [
        option.flag
        for option in options.OPTIONS
        if option.path.startswith("cluster.") and _has_path(from_options, option.path)
    ]
    if flags:
        raise SpecError(f"{', '.join(flags)}: for jobs on Kubernetes; leave out --on local, or leave out the option")


def _has_path(document: dict[str, Any], path: str) -> bool:
    section: Any = document
    for key in path.split("."):
        if not isinstance(section, dict) or key not in section:
            return False
        section = section[key]
    return True


def _section(document: dict[str, Any], name: str) -> dict[str, Any]:
    section = document.get(name)
    return section if isinstance(section, dict) else {}


def _is_resumed_by_name(document: dict[str, Any]) -> bool:
    """Whether a job of this machine resumes from its own checkpoints, not from those of a directory."""
    checkpoint = _section(document, "checkpoint")
    has_directory = bool(checkpoint.get("directory")) or bool(document.get("cluster"))
    return bool(checkpoint.get("resume")) and bool(document.get("name")) and not has_directory


def _earlier_description(document: dict[str, Any], directory_of: Callable[[str], JobDirectory]) -> dict[str, Any]:
    """The earlier description of a job that is resumed: its plan must not change with the number of workers."""
    name = document.get("name")
    if not isinstance(name, str) or not _section(document, "checkpoint").get("resume"):
        return {}
    directory = directory_of(name)
    if not directory.spec.exists():
        return {}
    return directory.load_spec().model_dump(mode="json", exclude_none=True)


def _strategy_document(strategy: str | None, document: dict[str, Any], from_options: dict[str, Any]) -> dict[str, Any]:
    """The document of --distribution_strategy. Local is one worker, with ps if the job has any."""
    if strategy is None:
        return {}
    if strategy in (Strategy.ALLREDUCE, Strategy.PS):
        return {"strategy": strategy}
    if strategy != LOCAL_STRATEGY:
        expected = f"expected {', '.join(STRATEGY_NAMES)}; received {strategy!r}"
        raise SpecError(f"--distribution_strategy: {expected}{did_you_mean(strategy, STRATEGY_NAMES)}")
    workers = _section(from_options, "workers")
    if any(str(workers.get(key, 1)) not in ("0", "1") for key in ("replicas", "min", "max")):
        raise SpecError(
            f"--distribution_strategy: Local is one worker; leave out --num_workers or use {STRATEGY_NAMES[0]}"
        )
    beside = Strategy.PS if _section(document, "ps").get("replicas") else Strategy.ALLREDUCE
    return {"strategy": beside.value, "workers": {"replicas": 1, "min": 1, "max": 1}}
