"""Checks everything that can be checked before a job is launched on this machine."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from elasticdl.errors import JobNotFound, NameInUse, SpecError
from elasticdl.extras import check_module, install_command, reinstall_command
from elasticdl.jobs import home, queueing
from elasticdl.jobs.interface import SubmissionReporter
from elasticdl.spec import BadRows, JobKind, JobSpec
from elasticdl.spec.directory import JobDirectory
from elasticdl.spelling import did_you_mean
from elasticdl.storage import probe
from elasticdl.storage.paths import StorePath, parse_path
from elasticdl.tls import Role

# What each kind of job reads, and the checkpoint it cannot do without.
_DATA_FIELDS = {
    JobKind.TRAINING: ("training", "--training_data"),
    JobKind.EVALUATION: ("validation", "--validation_data"),
    JobKind.PREDICTION: ("prediction", "--prediction_data"),
}


def check_job(spec: JobSpec, directory: JobDirectory, reporter: SubmissionReporter, index: Path) -> None:
    """Raises an error for the first thing that cannot work. The index of the data files is written to `index`."""
    _check_name(spec, directory)
    _check_requirements(spec)
    from elasticdl.model import check as model

    for remark in model.check_contract(spec):
        reporter.warn(remark)
    check_framework(_model_framework(spec), spec.kind)
    _check_writable("output (--output)", spec.output)
    _check_output(spec)
    _check_writable("checkpoint.directory (--checkpoint_dir)", spec.checkpoint.directory)
    _check_checkpoints(spec)
    _check_port(spec)
    _check_certificates(spec, directory)
    if spec.kind is not JobKind.SCRIPT:
        _check_data(spec, reporter, index)


def _check_name(spec: JobSpec, directory: JobDirectory) -> None:
    if not directory.root.exists():
        if spec.checkpoint.resume and not spec.checkpoint.directory:
            hint = did_you_mean(spec.name, home.job_names(), "; see `elasticdl jobs`")
            raise JobNotFound(f"--resume: there is no job {spec.name!r} to go on with{hint}")
        return
    if home.is_alive(directory):
        raise NameInUse(
            f"job {spec.name!r} is running; look at it with `elasticdl status {spec.name}`, "
            "end it with `elasticdl stop`, or choose another --job_name"
        )
    if queueing.is_name_queued(directory):
        raise NameInUse(
            f"job {spec.name!r} is in the queue; look at it with `elasticdl status {spec.name}`, "
            "take it out with `elasticdl stop`, or choose another --job_name"
        )
    if not spec.checkpoint.resume:
        raise NameInUse(
            f"job {spec.name!r} exists already in {directory.root}; go on from its newest checkpoint with --resume, "
            "or choose another --job_name"
        )


def check_framework(framework: str, kind: JobKind) -> None:
    """Raises SpecError, with the command that installs it, if workers here could not import what they need."""
    needed = {"torch": ("torch", "safetensors"), "keras": ("torch", "tensorflow", "keras", "safetensors")}[framework]
    if kind is not JobKind.SCRIPT:
        needed += ("pyarrow",)  # columns of a batch, predictions
    missing = [package for package in needed if find_spec(package) is None]
    if missing:
        extra = "torch" if framework == "torch" else "tensorflow"
        written = "" if kind is JobKind.SCRIPT else f" with a model written in {framework}"
        names = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
        raise SpecError(f"a {kind} job{written} needs {names}, not installed in {sys.prefix}: {install_command(extra)}")


def _model_framework(spec: JobSpec) -> str:
    if spec.model is None:
        return "torch"
    from elasticdl.model import definition, source

    return source.detect_framework(source.parse_source(definition.locate_model_file(spec.model).file)).value


def _check_requirements(spec: JobSpec) -> None:
    if spec.ps.replicas and find_spec("elasticdl.ps._native") is None:
        raise SpecError(
            "--distribution_strategy=ParameterServerStrategy: this installation has no native core, which ps need; "
            f"install a C++ compiler, then elasticdl again ({reinstall_command()}), "
            "or train with --distribution_strategy=AllreduceStrategy"
        )
    if spec.ps.replicas:
        check_module("--distribution_strategy=ParameterServerStrategy", "zmq")
    if spec.kind in (JobKind.EVALUATION, JobKind.PREDICTION) and not spec.checkpoint.init_from:
        raise SpecError(
            f"checkpoint.init_from (--checkpoint_dir_for_init): {spec.kind} needs the checkpoint of a model"
        )
    _check_initial(spec)
    if (
        spec.kind is JobKind.TRAINING
        and not spec.data.validation
        and (spec.evaluation.every_steps or spec.evaluation.every_epochs)
    ):
        raise SpecError("evaluation: there is nothing to evaluate on; give --validation_data")


def _check_initial(spec: JobSpec) -> None:
    """Checks the model to start from, in a directory or an object store."""
    initial, label = spec.checkpoint.init_from, "checkpoint.init_from (--checkpoint_dir_for_init)"
    if not initial:
        return
    path = parse_path(initial, probe.PROBE_S)
    if isinstance(path, StorePath):
        probe.check_readable(path, label)
    elif not path.is_dir():
        raise SpecError(f"{label}: no directory {initial}")


def _check_output(spec: JobSpec) -> None:
    from elasticdl.checkpoint import export_target

    if spec.output:
        target = parse_path(spec.output, probe.PROBE_S)
        if spec.kind is JobKind.TRAINING:
            export_target.check_export_target(target)
        if spec.kind is JobKind.PREDICTION:
            export_target.check_predictions_target(target)
    asks_for_columns = spec.prediction.id_column or spec.prediction.bad_rows is BadRows.MARK
    if spec.kind is JobKind.PREDICTION and asks_for_columns and _model_file_defines(spec, "PredictionOutputsProcessor"):
        raise SpecError(
            "prediction: --id_column and --bad_rows=mark are of predictions on disk, and the model file has a "
            "PredictionOutputsProcessor; leave out the options or the processor"
        )
    if (
        spec.kind is JobKind.PREDICTION
        and not spec.output
        and not _model_file_may_define(spec, "PredictionOutputsProcessor")
    ):
        raise SpecError(
            "output (--output): nowhere to put predictions; name a directory, or define PredictionOutputsProcessor"
        )


def _check_writable(label: str, path: str) -> None:
    """Checks that files can be made in the directory `path`, or in the nearest one above it that exists."""
    if not path:
        return
    target = parse_path(path, probe.PROBE_S)
    if isinstance(target, StorePath):
        probe.check_writable(target, label)
        return
    if target.exists() and not target.is_dir():
        raise SpecError(f"{label}: {path} is a file; name a directory")
    while not target.exists():
        target = target.parent
    if not target.is_dir():
        raise SpecError(f"{label}: {target} is a file, so {path} cannot be made; name another directory")
    try:
        # Asking the permissions is not enough: root, read-only mounts and full disks answer differently.
        with tempfile.TemporaryFile(dir=target) as file:
            file.write(b"x")
    except OSError as exc:
        reason = f"{target} is not writable ({exc.strerror})"
        raise SpecError(f"{label}: {reason}; change that, or name another directory") from exc


def _check_checkpoints(spec: JobSpec) -> None:
    """Refuses checkpoints of another run unless the user wants to resume or to replace it."""
    from elasticdl.checkpoint import manifest

    directory = spec.checkpoint.directory
    if not directory or spec.checkpoint.resume:
        return
    checkpoints = manifest.list_checkpoints(parse_path(directory, probe.PROBE_S))
    if checkpoints:
        raise SpecError(
            f"checkpoint.directory (--checkpoint_dir): {directory} holds {checkpoints[0].name} of another run; "
            f"go on from it with --resume, start a new run from it with --checkpoint_dir_for_init={directory}, "
            "or name another directory"
        )


def _check_port(spec: JobSpec) -> None:
    if not spec.metrics_port:
        return
    address = spec.workers.address
    try:
        socket.create_server((address, spec.metrics_port)).close()
    except OSError as exc:
        reason = os.strerror(exc.errno) if exc.errno else str(exc)
        raise SpecError(
            f"metrics_port (--metrics_port): cannot listen on {address}:{spec.metrics_port} ({reason}); "
            "end the process that uses it, choose another port, or leave it out for any free one"
        ) from exc


def _check_certificates(spec: JobSpec, directory: JobDirectory) -> None:
    identity = directory.tls_credentials(spec, Role.CLIENT)
    if identity is not None and not identity.job:
        identity.server_context()  # grpc would only say that there is no answer


def _check_data(spec: JobSpec, reporter: SubmissionReporter, index: Path) -> None:
    """Opens the data, so that a missing, empty or truncated file is found now."""
    if _model_file_may_define(spec, "custom_data_reader"):
        return
    field, option = _DATA_FIELDS[spec.kind]
    if not getattr(spec.data, field):
        raise SpecError(f"data.{field} ({option}): {spec.kind} needs data; give a file, a directory or a glob")
    from elasticdl.data.column_names import check_id_column
    from elasticdl.data.sources import open_source

    uris = {uri for uri in (getattr(spec.data, field), spec.data.validation) if uri}
    with reporter.data_check_progress() as progress:
        for uri in sorted(uris):
            source = open_source(uri, spec.data, index, partial(progress, uri))
            source.close()
            if spec.kind is JobKind.PREDICTION and spec.prediction.id_column:
                check_id_column(spec.prediction.id_column, source.columns)


def _model_file_defines(spec: JobSpec, name: str) -> bool:
    from elasticdl.model import definition, source

    assert spec.model is not None
    return name in source.find_bindings(source.parse_source(definition.locate_model_file(spec.model).file))[0]


def _model_file_may_define(spec: JobSpec, name: str) -> bool:
    """Whether the model file has `name`, or a star import that may define it, which only the worker can tell."""
    from elasticdl.model import definition, source

    assert spec.model is not None
    bound, is_complete = source.find_bindings(source.parse_source(definition.locate_model_file(spec.model).file))
    return name in bound or not is_complete
