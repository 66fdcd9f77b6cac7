"""Exports the trained model: weights, a description and, where possible, a program that needs no ElasticDL.

model.safetensors   parameters and buffers
model.json          what they are: model_def, parameters, step, metrics; checksums of the other files
model.pt2           of a torch model: torch.export.load("model.pt2").module()(features)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import nn

from elasticdl.checkpoint import captured_state, export_target, manifest, staging, store, tensors
from elasticdl.checkpoint.captured_state import MODEL_PREFIX, CapturedState
from elasticdl.checkpoint.manifest import FileEntry, Manifest
from elasticdl.errors import CheckpointCorrupt, CheckpointFailed, SpecError, StoreUnavailable
from elasticdl.storage.paths import AnyPath

PROGRAM_FILE = "model.pt2"
OWN_FILES = frozenset({store.MODEL_FILE, export_target.DESCRIPTION_FILE, PROGRAM_FILE})


class ExportedProgram(NamedTuple):
    """The files of a program that runs without ElasticDL, or the reason why there is none."""

    files: Sequence[str]  # the first is the one to load; with a reason, the files written instead
    reason: str | None = None


def export_model(
    model: nn.Module,
    sample_features: Any | None,
    target: AnyPath,
    extra: dict[str, Any],
    extra_files: Mapping[str, bytes] = MappingProxyType({}),
) -> list[AnyPath]:
    """Writes `model` into the directory `target`; returns the files written.

    `extra` (JSON values) describes it; its `step` and `records` count. `sample_features` is a batch
    for torch.export; without one, or where the model does not allow it, model.json says why there is no program.
    `extra_files` are more files by name, e.g. those that make features of raw rows.
    Raises SpecError if `target` has other files, CheckpointFailed if it cannot be written.
    """

    def program(directory: Path) -> ExportedProgram:
        reason = _write_program(model, sample_features, directory / PROGRAM_FILE)
        return ExportedProgram((PROGRAM_FILE,) if reason is None else (), reason)

    return export_with_program(program, model, target, extra, extra_files)


def export_with_program(
    program: Callable[[Path], ExportedProgram],
    model: nn.Module,
    target: AnyPath,
    extra: dict[str, Any],
    extra_files: Mapping[str, bytes] = MappingProxyType({}),
) -> list[AnyPath]:
    """Does what `export_model` does, with the program that `program` writes into the directory it gets."""
    export_target.check_export_target(target)
    captured = captured_state.capture_state(model, None, int(extra.get("step", 0)), int(extra.get("records", 0)))
    try:
        files = _write(program, captured, target, extra, extra_files)
    except StoreUnavailable as exc:
        raise CheckpointFailed(f"the export could not be written: {exc}") from exc
    return [target / name for name in (*files, export_target.DESCRIPTION_FILE)]


def _write(
    program: Callable[[Path], ExportedProgram],
    captured: CapturedState,
    target: AnyPath,
    extra: dict[str, Any],
    extra_files: Mapping[str, bytes],
) -> dict[str, FileEntry]:
    with staging.staged_directory(target, export_target.DESCRIPTION_FILE) as staged:
        weights = captured.weights()
        files = {store.MODEL_FILE: tensors.write_torch_tensors(staged / store.MODEL_FILE, weights)}
        written = program(staged)
        for name, content in extra_files.items():
            (staged / name).write_bytes(content)
        files |= {name: manifest.hash_file(staged / name) for name in (*written.files, *extra_files)}
        main = written.files[0] if written.files and written.reason is None else None
        description = {**extra, "program": main, "why_no_program": written.reason}
        document = Manifest("export", captured.step, captured.records, files, captured.meta, description)
        store.write_manifest(staged / export_target.DESCRIPTION_FILE, document)
    return files


def find_weights(path: AnyPath) -> tuple[CapturedState, Path]:
    """Reads the weights of an export, of a checkpoint, or of the newest checkpoint in a directory.

    Also returns the local directory that they are in.
    """
    description = path / export_target.DESCRIPTION_FILE
    if not description.exists():
        return _checkpoint_weights(path)
    document = manifest.read_manifest(description)
    if document.kind != "export" or store.MODEL_FILE not in document.files:
        raise CheckpointCorrupt(f"{path} is no export: {export_target.DESCRIPTION_FILE} names no {store.MODEL_FILE}")
    local = manifest.fetch_files(path, document, export_target.DESCRIPTION_FILE)
    manifest.verify_files(local, document)
    weights = {
        MODEL_PREFIX + name: tensor for name, tensor in tensors.read_torch_tensors(local / store.MODEL_FILE).items()
    }
    return CapturedState(document.step, document.records, weights, document.meta), local


def _checkpoint_weights(path: AnyPath) -> tuple[CapturedState, Path]:
    try:
        captured, _, directory = store.find_checkpoint(path)
        return captured, manifest.fetch_files(
            directory, manifest.read_manifest(directory / manifest.MANIFEST_FILE)
        )  # already downloaded
    except SpecError as exc:
        raise SpecError(f"{exc}; or an export with {export_target.DESCRIPTION_FILE}") from exc


def _write_program(model: nn.Module, sample_features: Any | None, path: Path) -> str | None:
    """Write the program; returns the reason if it cannot be exported."""
    if sample_features is None:
        return "no sample of features was at hand"
    was_training = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of torch.export about its own code
            program = _trace_program(model, _normalize_sample(sample_features))
            torch.export.save(program, path)
    except OSError:
        raise
    except Exception as exc:
        # A model that cannot be traced still gets an export of its weights.
        path.unlink(missing_ok=True)
        return f"torch.export refused the model: {type(exc).__name__}: {exc}"[:1000]
    finally:
        for part, mode in was_training:
            part.training = mode
    return None


def _trace_program(model: nn.Module, features: Any) -> torch.export.ExportedProgram:
    any_size = torch.utils._pytree.tree_map(_first_dimension_free, features)
    return torch.export.export(model, (features,), dynamic_shapes=(any_size,))


def _first_dimension_free(leaf: Any) -> Any:
    return {0: torch.export.Dim.AUTO} if isinstance(leaf, torch.Tensor) and leaf.ndim else None


def _normalize_sample(features: Any) -> Any:
    """The sample as torch.export should see it: it takes a first dimension of 1, and strides, for constants."""

    def plain(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.ndim:
            return leaf
        return (torch.cat([leaf, leaf]) if leaf.shape[0] == 1 else leaf).contiguous()

    return torch.utils._pytree.tree_map(plain, features)
