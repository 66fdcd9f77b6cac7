"""Builds the directory of a config: statistics of the training rows, features.yaml, preprocessor and model file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl import atomic
from elasticdl.ctr import job_description
from elasticdl.ctr.config import CtrConfig
from elasticdl.ctr.models import catalog
from elasticdl.data import columns
from elasticdl.data.files import paths, stored_file
from elasticdl.data.interface import RecordSource
from elasticdl.data.sources import open_source
from elasticdl.data.tables import table_uri
from elasticdl.errors import SpecError
from elasticdl.features import drift, features_file, proposal
from elasticdl.features.analysis import AnalysisSource, analyze
from elasticdl.features.preprocessing import target_encoding
from elasticdl.features.preprocessing.preprocessor import Preprocessor
from elasticdl.features.sql.interface import AnalysisOptions, AnalysisProgress
from elasticdl.features.statistics import Statistics
from elasticdl.model.functions import suggest_nearest
from elasticdl.spec import DataSpec

BATCH_ROWS = 16_384  # rows at a time
STATISTICS_FILE, FEATURES_FILE, SETTINGS_FILE, BUILD_STATE_FILE = (
    "statistics.json",
    "features.yaml",
    "job.json",
    "build.json",
)

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BuildResult:
    directory: Path
    front: Preprocessor
    rows: int  # of training


def check_model(name: str, where: str) -> None:
    """SpecError, with the nearest name, where the zoo has no such model of clicks."""
    if name not in catalog.MODELS_BY_NAME:
        hint = suggest_nearest(name, catalog.MODELS_BY_NAME) or "; `elasticdl zoo list` names all"
        raise SpecError(f"{where}: the zoo has no {name!r} of clicks{hint}")


def build_directory(
    config: CtrConfig, directory: Path, name: str, say: Notify, progress: AnalysisProgress
) -> BuildResult:
    """Make what is not there or no longer true; `say` hears of what a person should know."""
    check_model(config.model, f"{name}: model")
    directory.mkdir(parents=True, exist_ok=True)
    source = _open_training_source(config, config.data_splits[0], directory)
    rows = len(source)
    statistics = _load_or_compute_statistics(config, directory, rows, say, progress)
    chosen = features_file.load_features_file(directory / FEATURES_FILE).override(config.features, f"{name}: features")
    front = Preprocessor.build(chosen, statistics, str(directory / FEATURES_FILE), config.label_values)
    if config.weight is not None and config.weight in front.columns:
        raise SpecError(
            f"{name}: weight: {config.weight!r} is a feature, too; drop it: features: {{{config.weight}: drop}}"
        )
    front = _with_target_encoding(front, source, directory, progress)
    settings = {
        "model": config.model,
        "params": config.params,
        "weight": config.weight,
        "positive_weight": config.training.positive_weight,
        "patience": config.training.patience,
    }
    atomic.write_file(directory / SETTINGS_FILE, json.dumps(settings, indent=1) + "\n")
    _keep_or_write(
        directory,
        f"{job_description.module_name(config.model)}.py",
        job_description.render_model_file(config.model, name),
        say,
    )
    return BuildResult(directory, front, rows)


def _load_or_compute_statistics(
    config: CtrConfig, directory: Path, rows: int, say: Notify, progress: AnalysisProgress
) -> Statistics:
    """Those that are there, if they are of this data; else new ones, and a word about what has changed."""
    path = directory / STATISTICS_FILE
    of = {
        "data": _data_fingerprint(config.data), "columns": list(config.columns), "label": config.label,
        "min_count": config.min_count, "rows": rows,
        **({"label_values": config.label_values} if config.label_values else {}),
    }  # fmt: skip
    before = Statistics.load(path) if path.exists() else None
    if before is not None and _read_json(directory / BUILD_STATE_FILE).get("of") == of:
        return before
    source = AnalysisSource(config.data, config.columns, data_spec(config).delimiter or None)
    question = AnalysisOptions(
        min_count=config.min_count, max_rows=rows if config.data_splits[0] != config.data else None
    )
    found = analyze(source, question, config.label, progress, config.label_values)
    if before is not None:
        for one in drift.find_drift(before, found):
            say(f"since the last time: {one}")
        if config.keep_statistics:
            return before
    found.save(path)
    atomic.write_file(
        directory / BUILD_STATE_FILE, json.dumps(_read_json(directory / BUILD_STATE_FILE) | {"of": of}, indent=1) + "\n"
    )
    text = features_file.render_features_file(found, proposal.propose_transforms(found), STATISTICS_FILE)
    _keep_or_write(directory, FEATURES_FILE, text, say)
    return found


def _with_target_encoding(
    front: Preprocessor, source: RecordSource, directory: Path, progress: AnalysisProgress
) -> Preprocessor:
    """With how often values were clicked, where it asks for that: one more pass over the training rows."""
    made = _read_json(directory / BUILD_STATE_FILE)
    of = _digest(front.model_dump_json() + json.dumps(made.get("of")))
    if (
        front.target_encoders
        and made.get("target_counts") == of
        and (directory / target_encoding.TARGET_COUNTS_FILE).exists()
    ):
        return Preprocessor.load(directory)
    if made.pop("target_counts", None) is not None:  # before anything else: no front that follows is the one it is of
        atomic.write_file(directory / BUILD_STATE_FILE, json.dumps(made, indent=1) + "\n")
    if not front.target_encoders:
        front.save(directory)
        return front
    folds, clicks = target_encoding.TargetFolds(front.target_encoders), 0.0
    types = {name: kind for name, kind in front.column_types.items() if name in source.columns}
    for start in range(0, len(source), BATCH_ROWS):
        progress("counting clicks", start / len(source))
        batch = columns.read_columns(source, np.arange(start, min(start + BATCH_ROWS, len(source))), types)
        labels = front.read_labels(batch)
        folds.add_batch(batch, front.encode_ids(batch), labels)
        clicks += float(labels.sum())
    filled = front.model_copy(update={"target_encoders": folds.fitted_encoders(clicks / len(source))})
    folds.save(directory)
    filled.save(directory)
    atomic.write_file(directory / BUILD_STATE_FILE, json.dumps(made | {"target_counts": of}, indent=1) + "\n")
    return filled


def _open_training_source(config: CtrConfig, uri: str, directory: Path) -> RecordSource:
    index = directory / "index"
    index.mkdir(exist_ok=True)
    return open_source(uri, data_spec(config), index)


def data_spec(config: CtrConfig) -> DataSpec:
    return DataSpec(columns=config.columns, delimiter=config.delimiter)


def _data_fingerprint(uri: str) -> Any:
    """What changes when the data does: sizes and times of files. A table is taken to be the same under its name."""
    if table_uri.is_table_uri(uri):
        return str(table_uri.parse_table_uri(uri))
    return [
        [found.path, found.size, found.version]
        for found in map(stored_file.find_file, paths.expand_paths(uri, known_only=False))
    ]


def _keep_or_write(directory: Path, name: str, text: str, say: Notify) -> None:
    """A file that a person has changed since it was written stays."""
    path, made = directory / name, _read_json(directory / BUILD_STATE_FILE)
    prints = made.get("files", {})
    if path.exists():
        now = _digest(path.read_text(encoding="utf-8"))
        if now == _digest(text):
            return
        if now != prints.get(name):
            say(f"{path} was changed by hand and is kept; remove it to have it written anew")
            return
    atomic.write_file(path, text)
    atomic.write_file(
        directory / BUILD_STATE_FILE, json.dumps({**made, "files": {**prints, name: _digest(text)}}, indent=1) + "\n"
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, Mapping) else {}  # type: ignore[return-value]
