"""The directory of a config: statistics of its training rows, a treatment for each column, the front, a model file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl import replacement
from elasticdl.ctr import model_file
from elasticdl.ctr.config import CtrConfig
from elasticdl.data import columns, files, paths, table_uri
from elasticdl.data.interface import RecordSource
from elasticdl.data.open import open_source
from elasticdl.errors import SpecError
from elasticdl.features import commented, drift, file, proposal, rates
from elasticdl.features.analyze import Source, analyze
from elasticdl.features.front import Front
from elasticdl.features.sql.interface import Progress, Question
from elasticdl.features.statistics import Statistics
from elasticdl.model.terms import nearest
from elasticdl.spec import DataSpec
from elasticdl.zoo.ctr import models

PIECE = 16_384  # rows at a time
STATISTICS, FEATURES, JOB, MADE = "statistics.json", "features.yaml", "job.json", "made.json"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Built:
    directory: Path
    front: Front
    rows: int  # of training


def check_model(name: str, where: str) -> None:
    """SpecError, with the nearest name, where the zoo has no such model of clicks."""
    if name not in models.KNOWN:
        hint = nearest(name, models.KNOWN) or "; `elasticdl zoo list` names all"
        raise SpecError(f"{where}: the zoo has no {name!r} of clicks{hint}")


def build(config: CtrConfig, directory: Path, name: str, say: Say, progress: Progress) -> Built:
    """Make what is not there or no longer true; `say` hears of what a person should know."""
    check_model(config.model, f"{name}: model")
    directory.mkdir(parents=True, exist_ok=True)
    source = _source(config, config.parts[0], directory)
    rows = len(source)
    statistics = _statistics(config, directory, rows, say, progress)
    chosen = file.load(directory / FEATURES).override(config.features, f"{name}: features")
    front = Front.build(chosen, statistics, str(directory / FEATURES), config.label_values)
    if config.weight is not None and config.weight in front.columns:
        raise SpecError(
            f"{name}: weight: {config.weight!r} is a feature, too; drop it: features: {{{config.weight}: drop}}"
        )
    front = _with_rates(front, source, directory, progress)
    settings = {
        "model": config.model,
        "params": config.params,
        "weight": config.weight,
        "positive_weight": config.training.positive_weight,
        "patience": config.training.patience,
    }
    replacement.write(directory / JOB, json.dumps(settings, indent=1) + "\n")
    _keep_or_write(directory, f"{model_file.module_of(config.model)}.py", model_file.written(config.model, name), say)
    return Built(directory, front, rows)


def _statistics(config: CtrConfig, directory: Path, rows: int, say: Say, progress: Progress) -> Statistics:
    """Those that are there, if they are of this data; else new ones, and a word about what has changed."""
    path = directory / STATISTICS
    of = {
        "data": _print_of(config.data), "columns": list(config.columns), "label": config.label,
        "min_count": config.min_count, "rows": rows,
        **({"label_values": config.label_values} if config.label_values else {}),
    }  # fmt: skip
    before = Statistics.load(path) if path.exists() else None
    if before is not None and _read(directory / MADE).get("of") == of:
        return before
    source = Source(config.data, config.columns, data_spec(config).delimiter or None)
    question = Question(least_count=config.min_count, most_rows=rows if config.parts[0] != config.data else None)
    found = analyze(source, question, config.label, progress, config.label_values)
    if before is not None:
        for one in drift.compare(before, found):
            say(f"since the last time: {one}")
        if config.keep_statistics:
            return before
    found.save(path)
    replacement.write(directory / MADE, json.dumps(_read(directory / MADE) | {"of": of}, indent=1) + "\n")
    text = commented.written(found, proposal.propose(found), STATISTICS)
    _keep_or_write(directory, FEATURES, text, say)
    return found


def _with_rates(front: Front, source: RecordSource, directory: Path, progress: Progress) -> Front:
    """With how often values were clicked, where it asks for that: one more pass over the training rows."""
    made = _read(directory / MADE)
    of = _digest(front.model_dump_json() + json.dumps(made.get("of")))
    if front.rates and made.get("rates") == of and (directory / rates.FILE).exists():
        return Front.load(directory)
    if made.pop("rates", None) is not None:  # before anything else: no front that follows is the one it is of
        replacement.write(directory / MADE, json.dumps(made, indent=1) + "\n")
    if not front.rates:
        front.save(directory)
        return front
    folds, clicks = rates.Folds(front.rates), 0.0
    types = {name: kind for name, kind in front.types.items() if name in source.columns}
    for start in range(0, len(source), PIECE):
        progress("counting clicks", start / len(source))
        batch = columns.read(source, np.arange(start, min(start + PIECE, len(source))), types)
        labels = front.labels(batch)
        folds.count(batch, front.ids(batch), labels)
        clicks += float(labels.sum())
    filled = front.model_copy(update={"rates": folds.encoders(clicks / len(source))})
    folds.save(directory)
    filled.save(directory)
    replacement.write(directory / MADE, json.dumps(made | {"rates": of}, indent=1) + "\n")
    return filled


def _source(config: CtrConfig, uri: str, directory: Path) -> RecordSource:
    index = directory / "index"
    index.mkdir(exist_ok=True)
    return open_source(uri, data_spec(config), index)


def data_spec(config: CtrConfig) -> DataSpec:
    return DataSpec(columns=config.columns, delimiter=config.delimiter)


def _print_of(uri: str) -> Any:
    """What changes when the data does: sizes and times of files. A table is taken to be the same under its name."""
    if table_uri.is_table(uri):
        return str(table_uri.parse(uri))
    return [[found.path, found.size, found.version] for found in map(files.find, paths.expand(uri, known_only=False))]


def _keep_or_write(directory: Path, name: str, text: str, say: Say) -> None:
    """A file that a person has changed since it was written stays."""
    path, made = directory / name, _read(directory / MADE)
    prints = made.get("files", {})
    if path.exists():
        now = _digest(path.read_text(encoding="utf-8"))
        if now == _digest(text):
            return
        if now != prints.get(name):
            say(f"{path} was changed by hand and is kept; remove it to have it written anew")
            return
    replacement.write(path, text)
    replacement.write(directory / MADE, json.dumps({**made, "files": {**prints, name: _digest(text)}}, indent=1) + "\n")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, Mapping) else {}  # type: ignore[return-value]
