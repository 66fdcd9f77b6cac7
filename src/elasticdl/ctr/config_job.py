"""Builds the directory of a ctr.yaml and describes the ordinary job it means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.errors import SpecError
from elasticdl.jobs.interface import SubmissionReporter
from elasticdl.spec import JobKind, load

if TYPE_CHECKING:
    from elasticdl.ctr.build import BuildResult
    from elasticdl.ctr.config import CtrConfig


def is_ctr_config(document: Mapping[str, Any]) -> bool:
    """Whether a YAML file is a config, and not the description of a job."""
    if not document:
        return False
    from elasticdl.ctr import config as configs

    return configs.is_ctr_config(document)


def job_document(
    file: Path, document: Mapping[str, Any], kind: JobKind, ps_mode: str | None, reporter: SubmissionReporter
) -> dict[str, Any]:
    """Describes the job of a config, the document in `file`. `ps_mode` counts more than the config's."""
    from elasticdl.ctr.job_description import build_job_description

    config, built = build_config(file, reporter, document)
    described = build_job_description(config, built.directory, built.rows, ps_mode)
    if kind is JobKind.TRAINING:
        return described
    return _with_trained_model(described, config, kind)


def check_model_framework(document: Mapping[str, Any], kind: JobKind) -> None:
    """Raise SpecError, with the fix, where this machine lacks the framework of the config's model."""
    from elasticdl.ctr.models.catalog import KERAS_PREFIX
    from elasticdl.jobs import preflight

    model = document.get("model")
    name = next(iter(model), "") if isinstance(model, Mapping) else model
    preflight.check_framework("keras" if str(name).startswith(KERAS_PREFIX) else "torch", kind)


def build_config(
    file: Path, reporter: SubmissionReporter, document: Mapping[str, Any] | None = None
) -> tuple[CtrConfig, BuildResult]:
    """Builds the directory of a config beside `file`. Returns the config with absolute paths, and what was built."""
    from elasticdl.ctr import build
    from elasticdl.ctr import config as configs

    config = with_absolute_paths(
        configs.parse_config(document or load.read_yaml_file(file), str(file)), file.absolute().parent
    )
    with reporter.analysis_progress() as progress:
        built = build.build_directory(config, build_directory(file), file.name, reporter.say, progress)
    layout = built.preprocessor.layout
    reporter.say(
        f"{built.rows:,} rows to train on; {len(layout.fields)} fields of ids, {len(layout.numbers)} numbers"
        f"{f', {len(layout.sequences)} sequences' if layout.sequences else ''}; all of it in {built.directory}"
    )
    return config, built


def build_directory(file: Path) -> Path:
    return file.absolute().parent / f"{file.stem}-ctr"


def with_absolute_paths(config: CtrConfig, directory: Path) -> CtrConfig:
    """With absolute paths; tables and URLs stay."""
    splits = {"training": config.data, "validation": config.validation, "prediction": config.test}
    data = load.make_paths_absolute({"data": splits}, directory)["data"]
    output = load.make_paths_absolute({"output": config.output}, directory)["output"]
    return config.model_copy(
        update={
            "data": data["training"],
            "validation": data["validation"],
            "test": data["prediction"],
            "output": output,
        }
    )


def _with_trained_model(described: dict[str, Any], config: CtrConfig, kind: JobKind) -> dict[str, Any]:
    """Evaluated or predicted with the exported model; evaluated on the test rows."""
    model = described.pop("output")
    _, validation, test = config.data_splits
    described["data"].pop("training")
    described["data"].pop("validation", None)
    if kind is JobKind.EVALUATION:
        if test is None and validation is None:
            raise SpecError("nothing is left to evaluate on: split has no test rows; give --validation_data")
        described["data"]["validation"] = test or validation
    described.pop("evaluation", None)
    described.pop("ps", None)
    described["checkpoint"] = {"init_from": model}
    return described
