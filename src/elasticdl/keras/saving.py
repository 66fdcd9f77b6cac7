"""A trained Keras model for others: a SavedModel, and the same as a .keras file.

saved_model.pb, variables/   tf.saved_model.load(directory).serve(features)
model.keras                  keras.saving.load_model(directory / "model.keras"), where the model allows it
"""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import Any

from elasticdl.checkpoint.export import Program
from elasticdl.keras import layers, moving
from elasticdl.keras.computing import told_structures
from elasticdl.keras.runtime import keras, tf

KERAS_FILE = "model.keras"
SAVED_MODEL_FILE = "saved_model.pb"
ENDPOINT = "serve"

_log = logging.getLogger(__name__)


def write(model: Any, features: Any, directory: Path) -> Program:
    """Both programs, or the one that can be had; `features` is the spec of those of a batch."""
    before = _files(directory)
    reasons = [_saved_model(model, features, directory), _keras_file(model, directory / KERAS_FILE)]
    found = sorted(_files(directory) - before, key=lambda name: (name != SAVED_MODEL_FILE, name))
    for name in found:
        _sync(directory / name)
    for reason in filter(None, reasons):
        _log.warning("the export has %s", reason)
    return Program(found, None if found else "; ".join(reasons))


def _saved_model(model: Any, features: Any, directory: Path) -> str:
    archive = keras.export.ExportArchive()
    try:
        with told_structures():
            archive.track(model)
            for table in _tables(model):
                archive.track(table)
            serve = tf.function(lambda given: model(given, training=False), input_signature=[features], autograph=False)
            archive.add_endpoint(ENDPOINT, serve)
            archive.write_out(str(directory), verbose=False)
    except OSError:
        raise
    except Exception as exc:
        # Whatever a model does that cannot be written down, its weights are still worth having.
        return f"no SavedModel: {type(exc).__name__}: {exc}"[:1000]
    return ""


def _tables(model: Any) -> list[Any]:
    """Vocabularies of its layers. Keras finds those of models of the functional API by itself, not of all classes."""
    kind = tf.saved_model.experimental.TrackableResource
    return [value for layer in layers.of(model) for value in vars(layer).values() if isinstance(value, kind)]


def _keras_file(model: Any, path: Path) -> str:
    try:
        plain = moving.portable(model)
        if plain is None:
            return (
                f"no {KERAS_FILE}: embeddings with combiners, of any ids or in a class cannot be plain layers of Keras"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Keras about classes that the reader must know
            keras.saving.save_model(plain, path)
    except OSError:
        raise
    except Exception as exc:
        path.unlink(missing_ok=True)
        return f"no {KERAS_FILE}: {type(exc).__name__}: {exc}"[:1000]
    return ""


def _files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()}


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
