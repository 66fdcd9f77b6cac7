"""The subject of a report: a click model with its ctr.yaml and its job, found by either."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.checkpoint import export_target, manifest
from elasticdl.ctr import config_job
from elasticdl.errors import CheckpointCorrupt, SpecError
from elasticdl.jobs import home
from elasticdl.spec import JobKind, JobSpec, load
from elasticdl.spec.directory import JobDirectory, read_json
from elasticdl.storage.paths import AnyPath, StorePath, parse_path

if TYPE_CHECKING:
    from elasticdl.ctr.config import CtrConfig

_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class ReportSubject:
    """The model that is reported on. `job` is None if the model's job is not on this machine."""

    file: Path
    config: CtrConfig
    source: AnyPath  # the location of the model
    model: Path  # the same, or a copy of it on this machine
    job: JobDirectory | None

    @property
    def directory(self) -> Path:
        return config_job.build_directory(self.file)


def find_subject(word: str) -> ReportSubject:
    """Finds the model of a ctr.yaml or of a job, by path or name. Raises SpecError if there is no model."""
    file = Path(word)
    if file.suffix in _SUFFIXES or file.is_file():
        return _subject_of_file(file)
    directory = home.find_directory(word)
    return subject_of_job(directory, find_config_file(directory))


def subject_of_job(directory: JobDirectory, file: Path) -> ReportSubject:
    """Returns the export of a job that succeeded, otherwise its newest checkpoint."""
    spec = directory.load_spec()
    result = read_json(directory.result) or {}
    config = read_config(file)
    export = parse_path(spec.output, spec.timing.store_retry_s)
    if spec.output and result.get("phase") == "succeeded" and _exporting_job(export) == spec.name:
        return ReportSubject(file, config, export, _fetch_export(export), directory)
    checkpoints = directory.checkpoints(spec)
    if not manifest.list_checkpoints(checkpoints):
        raise SpecError(f"job {spec.name} has no model yet: neither an export nor a checkpoint")
    return ReportSubject(file, config, checkpoints, _fetch_newest_checkpoint(checkpoints), directory)


def _subject_of_file(file: Path) -> ReportSubject:
    config = read_config(file)
    directory = config_job.build_directory(file)
    export = parse_path(config.output or str(directory / "model"))
    trained_by = _exporting_job(export)
    jobs = [job for job in map(home.job_directory, reversed(home.job_names())) if _trains_directory(job, directory)]
    if trained_by is not None:
        job = next((job for job in jobs if job.root.name == trained_by), None)
        return ReportSubject(file, config, export, _fetch_export(export), job)
    if not jobs:
        raise SpecError(f"{export}: there is no trained model; train it first: elasticdl train {file}")
    return subject_of_job(jobs[0], file)


def _trains_directory(job: JobDirectory, directory: Path) -> bool:
    document = read_json(job.spec) or {}
    zoo = (document.get("model") or {}).get("zoo")
    return bool(document.get("kind") == JobKind.TRAINING.value and zoo == str(directory))


def is_ctr_job(spec: JobSpec) -> bool:
    """Returns whether a job trains the model of a ctr.yaml."""
    is_built = spec.model is not None and (Path(spec.model.zoo) / "preprocessor.json").is_file()
    return is_built and spec.kind is JobKind.TRAINING and _config_stem(spec) is not None


def find_config_file(directory: JobDirectory) -> Path:
    """Returns the ctr.yaml of a job, which is beside the job's model directory."""
    spec = directory.load_spec()
    stem = _config_stem(spec)
    if spec.kind is not JobKind.TRAINING or spec.model is None or stem is None:
        raise SpecError(f"job {spec.name}: expected a job that trains the model of a ctr.yaml")
    zoo = Path(spec.model.zoo)
    for suffix in _SUFFIXES:
        if (zoo.parent / f"{stem}{suffix}").is_file():
            return zoo.parent / f"{stem}{suffix}"
    raise SpecError(f"job {spec.name}: its config {zoo.parent / stem}.yaml does not exist any more; restore it")


def _config_stem(spec: JobSpec) -> str | None:
    """Returns the name of the config without its suffix; None if the model directory is not that of a config."""
    name = Path(spec.model.zoo).name if spec.model is not None else ""
    return name.removesuffix("-ctr") if name.endswith("-ctr") else None


def read_config(file: Path) -> CtrConfig:
    """Reads a ctr.yaml and makes its paths absolute."""
    from elasticdl.ctr import config as configs

    document = load.read_yaml_file(file)
    if not configs.is_ctr_config(document):
        raise SpecError(f"{file}: expected a ctr.yaml with data, label and model, or the name of a job")
    return config_job.with_absolute_paths(configs.parse_config(document, str(file)), file.absolute().parent)


def _fetch_export(export: AnyPath) -> Path:
    if not isinstance(export, StorePath):
        return export
    return manifest.fetch_files(
        export, manifest.read_manifest(export / export_target.DESCRIPTION_FILE), export_target.DESCRIPTION_FILE
    )


def _fetch_newest_checkpoint(checkpoints: AnyPath) -> Path:
    """Returns the directory itself, or, in an object store, a local copy of the newest usable checkpoint."""
    if not isinstance(checkpoints, StorePath):
        return checkpoints
    newest = manifest.find_newest(checkpoints)
    assert newest is not None, "the caller has checked that there is a checkpoint"
    return manifest.fetch_files(newest, manifest.read_manifest(newest / manifest.MANIFEST_FILE))


def _exporting_job(export: AnyPath) -> str | None:
    """Returns the name of the job that wrote an export; None if there is no export."""
    path = export / export_target.DESCRIPTION_FILE
    if not path.exists():
        return None
    try:
        return str(manifest.read_manifest(path).extra.get("job") or "")
    except CheckpointCorrupt:
        return None
