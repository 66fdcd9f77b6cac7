"""Exports a trained Keras model: a SavedModel, and a .keras file if the model allows it."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import Any

from elasticdl.checkpoint.export import ExportedProgram
from elasticdl.keras.adapter import layer_names
from elasticdl.keras.adapter.computation import ignore_structure_warnings
from elasticdl.keras.embeddings import moving
from elasticdl.keras.runtime import keras, tf

KERAS_FILE = "model.keras"
SAVED_MODEL_FILE = "saved_model.pb"
ENDPOINT = "serve"

_log = logging.getLogger(__name__)


def write_programs(model: Any, features: Any, directory: Path) -> ExportedProgram:
    """Write both programs, or the one that is possible; `features` is the spec of the features of a batch."""
    before = _list_files(directory)
    reasons = [_write_saved_model(model, features, directory), _write_keras_file(model, directory / KERAS_FILE)]
    files = sorted(_list_files(directory) - before, key=lambda name: (name != SAVED_MODEL_FILE, name))
    for name in files:
        _sync_file(directory / name)
    for reason in filter(None, reasons):
        _log.warning("the export has %s", reason)
    return ExportedProgram(files, None if files else "; ".join(reasons))


def _write_saved_model(model: Any, features: Any, directory: Path) -> str:
    archive = keras.export.ExportArchive()
    try:
        with ignore_structure_warnings():
            archive.track(model)
            for table in _find_vocabularies(model):
                archive.track(table)
            serve = tf.function(
                lambda inputs: model(inputs, training=False), input_signature=[features], autograph=False
            )
            archive.add_endpoint(ENDPOINT, serve)
            archive.write_out(str(directory), verbose=False)
    except OSError:
        raise
    except Exception as exc:
        # A model that cannot be exported still has weights worth saving.
        return f"no SavedModel: {type(exc).__name__}: {exc}"[:1000]
    return ""


def _find_vocabularies(model: Any) -> list[Any]:
    """The vocabularies of all layers. Keras finds them by itself in functional models, but not in all classes."""
    kind = tf.saved_model.experimental.TrackableResource
    return [
        value for layer in layer_names.list_layers(model) for value in vars(layer).values() if isinstance(value, kind)
    ]


def _write_keras_file(model: Any, path: Path) -> str:
    try:
        plain = moving.make_portable(model)
        if plain is None:
            return (
                f"no {KERAS_FILE}: embeddings with combiners, of any ids or in a class cannot be plain layers of Keras"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Keras warns about classes that the reader must know
            keras.saving.save_model(plain, path)
    except OSError:
        raise
    except Exception as exc:
        path.unlink(missing_ok=True)
        return f"no {KERAS_FILE}: {type(exc).__name__}: {exc}"[:1000]
    return ""


def _list_files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()}


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
