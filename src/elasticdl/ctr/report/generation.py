"""Generates the report on a click model: another process measures the model, this one writes the page."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.ctr.report import subjects
from elasticdl.ctr.report.subjects import ReportSubject
from elasticdl.errors import ElasticDLError
from elasticdl.jobs import history, home, timeline
from elasticdl.jobs.interface import SubmissionReporter
from elasticdl.reporting import prepare_figures
from elasticdl.spec import DataSpec, JobSpec
from elasticdl.spec.directory import JobDirectory, read_json

if TYPE_CHECKING:
    from elasticdl.ctr.report.curves import TrainingCurves
    from elasticdl.ctr.report.measurement import MeasurementRequest, ModelMeasurement
    from elasticdl.features.sql.interface import AnalysisProgress

REPORT_DIRECTORY = "report"
DEFAULT_ROWS, DEFAULT_REPEATS = 10_000, 2
MEASURE_ARGUMENTS = ("-P", "-m", "elasticdl.ctr.report.measure")


def generate_report(
    subject: ReportSubject, target: Path, rows: int, repeats: int, command: str, progress: AnalysisProgress
) -> Path:
    """Writes the report to the directory `target` and returns the path of its page."""
    from elasticdl.ctr.report import measurement as documents

    prepare_figures("a report")
    target.mkdir(parents=True, exist_ok=True)
    index = subject.directory / "index"
    index.mkdir(parents=True, exist_ok=True)
    spec = subject.job.load_spec() if subject.job is not None else None
    config = subject.config
    _, validation, test = config.data_splits
    request = documents.MeasurementRequest(
        model=subject.model,
        params=dict(spec.model.params) if spec is not None and spec.model is not None else {},
        data=spec.data if spec is not None else DataSpec(columns=config.columns, delimiter=config.delimiter),
        validation=spec.data.validation if spec is not None else validation,
        test=test,
        index=index,
        rows=rows,
        repeats=repeats,
        seed=config.training.seed,
        target=target / documents.MEASUREMENT_FILE,
    )
    measured = measure_in_process(request, progress)
    progress("drawing", 1.0)
    return _write_page(subject, spec, measured, target, command)


def measure_in_process(request: MeasurementRequest, progress: AnalysisProgress) -> ModelMeasurement:
    """Measures a model in a process of its own. Raises ElasticDLError with the reason of a failure."""
    from elasticdl.ctr.report.measurement import ModelMeasurement

    argv = [sys.executable, *MEASURE_ARGUMENTS]
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8"
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            report: dict[str, Any] = {}
            try:
                with suppress(BrokenPipeError):  # the process has ended, and its output has the reason
                    process.stdin.write(request.model_dump_json())
                    process.stdin.close()
                for line in process.stdout:
                    for report in history.parse_events(line):  # skips lines that are not reports
                        if "activity" in report:
                            progress(str(report["activity"]), float(report["done"]))
            except BaseException:
                process.terminate()
                raise
        if process.returncode:
            errors.seek(0)
            last = errors.read().strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
            raise ElasticDLError(str(report.get("error") or f"the measuring process failed: {last[0]}"))
    return ModelMeasurement.load(request.target)


def report_finished_job(name: str, file: Path | None, command: str, reporter: SubmissionReporter) -> None:
    """Generates the report at the end of a job and says in one line where it is, or why there is none. Never raises.

    `file` is the config of the job; None: look for one. The report shows `command`, which generated it.
    """
    directory = home.job_directory(name)
    result = read_json(directory.result) or {}
    has_model = result.get("phase") == "succeeded" or (result.get("phase") == "stopped" and result.get("checkpoint"))
    try:
        if file is None:
            if not subjects.is_ctr_job(directory.load_spec()):
                return
            file = subjects.find_config_file(directory)
        if not has_model or not subjects.read_config(file).report:
            return
        subject = subjects.subject_of_job(directory, file)
        with reporter.analysis_progress() as progress:
            path = generate_report(
                subject, subject.directory / REPORT_DIRECTORY, DEFAULT_ROWS, DEFAULT_REPEATS, command, progress
            )
        reporter.say(f"{'report':<12} {path}")
    except KeyboardInterrupt:
        reporter.say(f"no report: interrupted; generate it with `elasticdl ctr report {name}`")
    except Exception as exc:
        # A report that fails must not fail the job: its model is there.
        reason = str(exc).partition("\n")[0] or type(exc).__name__
        reporter.say(f"no report: {reason}; try again with `elasticdl ctr report {name}`")


def _write_page(
    subject: ReportSubject, spec: JobSpec | None, measured: ModelMeasurement, target: Path, command: str
) -> Path:
    import yaml

    from elasticdl.ctr.report import page
    from elasticdl.ctr.report.columns import describe_columns
    from elasticdl.features import features_file as features
    from elasticdl.features.statistics import Statistics

    config = subject.config
    files = Path(measured.files)
    statistics = Statistics.load(files / "statistics.json")
    rows = describe_columns(
        statistics,
        features.load_features_file(files / "features.yaml"),
        config.features,
        measured.importance,
        str(subject.file),
    )
    settings = {subject.file.name: config.model_dump(mode="json")}
    if spec is not None:
        settings["the job, in full"] = spec.model_dump(mode="json", exclude_none=True)
    name = spec.name if spec is not None else subject.file.stem
    training_curves = _read_training_curves(subject.job) if subject.job is not None else None
    facts = {
        "model": config.model + (f" {json.dumps(config.params)}" if config.params else ""),
        "parameters": f"{measured.parameters:,}",
        "trained": f"{statistics.rows:,} rows; the model is that of step {measured.step:,}"
        + (
            f" of {training_curves.last_step:,}"
            if training_curves is not None and training_curves.last_step > measured.step
            else ""
        ),
        "scored by": "the exported program" if measured.uses_exported_program else "its weights",
        "from": str(subject.source),
        "training rows": spec.data.training or "" if spec is not None else config.data_splits[0],
        "validation": (spec.data.validation if spec is not None else config.data_splits[1]) or "none",
        "test": config.data_splits[2] or "none",
    }
    texts = {
        title: yaml.safe_dump(document, sort_keys=False, allow_unicode=True) for title, document in settings.items()
    }
    return page.write_report(target, page.ModelReport(name, facts, measured, training_curves, rows, texts, command))


def _read_training_curves(directory: JobDirectory) -> TrainingCurves:
    """Reads the curves of a job, including its earlier runs."""
    from elasticdl.ctr.report.curves import collect_curves

    earlier = sorted(directory.root.glob("previous-[0-9]*"), key=lambda path: int(path.name.rpartition("-")[2]))
    events = [event for root in (*earlier, directory.root) for event in history.read_events(JobDirectory(root))]
    points = {
        tag: list(zip(curve.steps, curve.times, curve.values, strict=True))
        for tag, curve in timeline.read_curves(directory).items()
    }
    return collect_curves(points, events)
