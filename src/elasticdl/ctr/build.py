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
from elasticdl.features.preprocessing.encoders import CrossEncoder, HashingEncoder, IndexLookupEncoder
from elasticdl.features.preprocessing.preprocessor import Preprocessor
from elasticdl.features.sql.interface import AnalysisOptions, AnalysisProgress
from elasticdl.features.statistics import Statistics
from elasticdl.model.functions import suggest_nearest
from elasticdl.spec import DataSpec

BATCH_ROWS = 16_384
"""Target counts are computed from this many rows at a time."""

STATISTICS_FILE, FEATURES_FILE = "statistics.json", "features.yaml"
SETTINGS_FILE, BUILD_STATE_FILE = "job.json", "build.json"

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BuildResult:
    directory: Path
    preprocessor: Preprocessor
    rows: int  # training rows


def check_model(name: str, where: str) -> None:
    """Raises SpecError, with the nearest name, if there is no CTR model called `name`."""
    if name not in catalog.MODELS_BY_NAME:
        hint = suggest_nearest(name, catalog.MODELS_BY_NAME) or "; `elasticdl zoo list` names all"
        raise SpecError(f"{where}: there is no CTR model {name!r}{hint}")


def build_directory(
    config: CtrConfig, directory: Path, name: str, notify: Notify, progress: AnalysisProgress
) -> BuildResult:
    """Writes the files that are missing or out of date; `notify` is called with what the user should know."""
    check_model(config.model, f"{name}: model")
    directory.mkdir(parents=True, exist_ok=True)
    source = _open_training_source(config, config.data_splits[0], directory)
    rows = len(source)
    statistics = _load_or_compute_statistics(config, directory, rows, notify, progress)
    written = features_file.load_features_file(directory / FEATURES_FILE)
    preprocessor = Preprocessor.build(
        written.override(config.features, f"{name}: features"),
        statistics,
        str(directory / FEATURES_FILE),
        config.label_values,
    )
    if config.weight is not None and config.weight in preprocessor.columns:
        raise SpecError(
            f"{name}: weight: {config.weight!r} is a feature, too; drop it: features: {{{config.weight}: drop}}"
        )
    _check_native_core(preprocessor)
    preprocessor = _with_target_counts(preprocessor, source, directory, progress)
    settings = {
        "model": config.model,
        "params": config.params,
        "weight": config.weight,
        "positive_weight": config.training.positive_weight,
        "patience": config.training.patience,
    }
    atomic.write_file(directory / SETTINGS_FILE, json.dumps(settings, indent=1) + "\n")
    model_file = f"{job_description.module_name(config.model)}.py"
    _keep_or_write(directory, model_file, job_description.render_model_file(config.model, name), notify)
    return BuildResult(directory, preprocessor, rows)


def _check_native_core(preprocessor: Preprocessor) -> None:
    """Raises PermanentError if the preprocessor looks up or hashes texts, and the native core is not built."""
    takes_texts = IndexLookupEncoder | HashingEncoder | CrossEncoder
    if preprocessor.sequences or any(isinstance(encoder, takes_texts) for encoder in preprocessor.fields):
        from elasticdl.features import native_core  # noqa: F401


def _load_or_compute_statistics(
    config: CtrConfig, directory: Path, rows: int, notify: Notify, progress: AnalysisProgress
) -> Statistics:
    """Reuses existing statistics if they match the data; otherwise recomputes them and reports the drift."""
    path, state_path = directory / STATISTICS_FILE, directory / BUILD_STATE_FILE
    inputs = {
        "data": _data_fingerprint(config.data), "columns": list(config.columns), "label": config.label,
        "min_count": config.min_count, "rows": rows,
        **({"label_values": config.label_values} if config.label_values else {}),
    }  # fmt: skip
    before = Statistics.load(path) if path.exists() else None
    if before is not None and _read_json(state_path).get("inputs") == inputs:
        return before
    source = AnalysisSource(config.data, config.columns, data_spec(config).delimiter or None)
    options = AnalysisOptions(
        min_count=config.min_count, max_rows=rows if config.data_splits[0] != config.data else None
    )
    statistics = analyze(source, options, config.label, progress, config.label_values)
    if before is not None:
        for finding in drift.find_drift(before, statistics):
            notify(f"since the last time: {finding}")
        if config.keep_statistics:
            return before
    statistics.save(path)
    _write_json(state_path, _read_json(state_path) | {"inputs": inputs})
    text = features_file.render_features_file(statistics, proposal.propose_transforms(statistics), STATISTICS_FILE)
    _keep_or_write(directory, FEATURES_FILE, text, notify)
    return statistics


def _with_target_counts(
    preprocessor: Preprocessor, source: RecordSource, directory: Path, progress: AnalysisProgress
) -> Preprocessor:
    """Fills target encoders, if there are any, in one more pass over the training rows."""
    state_path = directory / BUILD_STATE_FILE
    state = _read_json(state_path)
    digest = _digest(preprocessor.model_dump_json() + json.dumps(state.get("inputs")))
    counts_path = directory / target_encoding.TARGET_COUNTS_FILE
    if preprocessor.target_encoders and state.get("target_counts") == digest and counts_path.exists():
        return Preprocessor.load(directory)
    # First of all: the counts there do not belong to the preprocessor that is written from here on.
    if state.pop("target_counts", None) is not None:
        _write_json(state_path, state)
    if not preprocessor.target_encoders:
        preprocessor.save(directory)
        return preprocessor
    folds, positives = target_encoding.TargetFolds(preprocessor.target_encoders), 0.0
    types = {name: kind for name, kind in preprocessor.column_types.items() if name in source.columns}
    for start in range(0, len(source), BATCH_ROWS):
        progress("counting labels", start / len(source))
        batch = columns.read_columns(source, np.arange(start, min(start + BATCH_ROWS, len(source))), types)
        labels = preprocessor.read_labels(batch)
        folds.add_batch(batch, preprocessor.encode_ids(batch), labels)
        positives += float(labels.sum())
    filled = preprocessor.model_copy(update={"target_encoders": folds.fitted_encoders(positives / len(source))})
    folds.save(directory)
    filled.save(directory)
    _write_json(state_path, state | {"target_counts": digest})
    return filled


def _open_training_source(config: CtrConfig, uri: str, directory: Path) -> RecordSource:
    index = directory / "index"
    index.mkdir(exist_ok=True)
    return open_source(uri, data_spec(config), index)


def data_spec(config: CtrConfig) -> DataSpec:
    return DataSpec(columns=config.columns, delimiter=config.delimiter)


def _data_fingerprint(uri: str) -> Any:
    """Returns what changes with the data: sizes and times of files. A table is identified by its name."""
    if table_uri.is_table_uri(uri):
        return str(table_uri.parse_table_uri(uri))
    files = map(stored_file.find_file, paths.expand_paths(uri, known_only=False))
    return [[file.path, file.size, file.version] for file in files]


def _keep_or_write(directory: Path, name: str, text: str, notify: Notify) -> None:
    """Writes a file, unless the user has changed it since it was written."""
    path, state = directory / name, _read_json(directory / BUILD_STATE_FILE)
    digests = state.get("files", {})
    if path.exists():
        current = _digest(path.read_text(encoding="utf-8"))
        if current == _digest(text):
            return
        if current != digests.get(name):
            notify(f"{path} was changed by hand and is kept; remove it to have it written again")
            return
    atomic.write_file(path, text)
    _write_json(directory / BUILD_STATE_FILE, {**state, "files": {**digests, name: _digest(text)}})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, Mapping) else {}  # type: ignore[return-value]


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    atomic.write_file(path, json.dumps(document, indent=1) + "\n")
