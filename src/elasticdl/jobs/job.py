"""A job from Python: wait for it, look at it, scale it, evaluate it, stop it, wherever it runs."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from elasticdl.errors import ElasticDLError, JobFailed, SpecError, TransientError, WaitTimedOut
from elasticdl.jobs import lookup
from elasticdl.jobs.home import LAST
from elasticdl.jobs.interface import KILL_REASON, THIS_MACHINE, JobBackend
from elasticdl.jobs.job_status import JobEvent, JobStatus
from elasticdl.spec import JobKind, JobSpec, Phase
from elasticdl.spelling import did_you_mean

if TYPE_CHECKING:
    from typing import Unpack

    from elasticdl.jobs.history import LoggedEvaluation
    from elasticdl.jobs.submission_options import SubmissionOptions
    from elasticdl.master.runtime.replay import StoredJournal

_log = logging.getLogger("elasticdl")

EXIT_TIMEOUT_S = 10.0  # how long the last processes of a job that is over may take to end
STATUS_TIMEOUT_S = 5.0  # for a master that is being restarted
POLL_S = 0.3  # between two looks at a job of this machine
CLUSTER_POLL_S = 1.0  # between two looks at the objects of a job on a cluster
STOP_TIMEOUT_S = 300.0  # how long the end of a `with` block waits for the last checkpoint


class LogLine(NamedTuple):
    replica: str  # who wrote it: worker-0, ps-1, master or launcher
    text: str


class Job:
    """A job of this machine, of its queue, or of a cluster.

    Made by `elasticdl.submit` and `elasticdl.jobs.find`. The job does not depend on this object, nor on the Python
    session: it goes on when either is gone. As a context manager, a Job is stopped when the block ends:

        with elasticdl.submit("job.yaml") as job:
            job.wait(timeout_s=600)

    Every method asks the job again. If the job was deleted meanwhile, it raises JobNotFound.
    """

    def __init__(self, backend: JobBackend) -> None:
        self._backend = backend

    def __repr__(self) -> str:
        return f"<elasticdl.jobs.Job {self.name!r}, {self.location}>"

    @property
    def name(self) -> str:
        return self._backend.name

    @property
    def location(self) -> str:
        """`here` for a job of this machine, else CONTEXT/NAMESPACE."""
        return self._backend.location

    @property
    def place(self) -> str:
        """Where the job runs, for a sentence: "in DIRECTORY", or "in namespace N of context C"."""
        return self._backend.place

    @property
    def directory(self) -> Path | None:
        """The job's directory on this machine; None for a job on a cluster."""
        directory = self._backend.local_directory
        return directory.root if directory is not None else None

    @property
    def spec(self) -> JobSpec:
        """The resolved job."""
        return self._refresh().load_spec()

    @property
    def status(self) -> JobStatus:
        """The status of the job now, from its master, or the last one on record."""
        return JobStatus.from_message(self._refresh().status(STATUS_TIMEOUT_S), self.location)

    def quick_status(self) -> JobStatus:
        """As `status`, for lists: does not wait long for a master, nor ask a cluster again."""
        return JobStatus.from_message(self._backend.quick_status(), self.location)

    def status_document(self, status: JobStatus) -> dict[str, Any]:
        """A status of this job as plain JSON values: what `elasticdl status --json` prints."""
        return self._backend.status_document(status)

    def has_processes(self) -> bool:
        """Whether a launcher or master of the job runs on this machine. It may, for a moment, when the job is over."""
        return self._refresh().has_processes()

    @property
    def metrics(self) -> Mapping[str, float]:
        """The metrics of the newest evaluation; empty before the first."""
        return self.status.metrics

    def wait(self, timeout_s: float | None = None, on_progress: Callable[[JobStatus], None] | None = None) -> JobStatus:
        """Waits until the job is over. Returns its last status, also of a job that failed: see `raise_for_failure`.

        `on_progress` is called with every status that differs from the one before. After `timeout_s` seconds,
        WaitTimedOut is raised. Neither that nor Ctrl-C, which raises KeyboardInterrupt as usual, touches the job: it
        goes on, and you may call `wait` again, or `stop`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        poll_s = POLL_S if self.location == THIS_MACHINE else CLUSTER_POLL_S
        last: JobStatus | None = None
        exit_deadline: float | None = None  # a job that is over waits so long for its last processes
        while True:
            with suppress(TransientError):  # a master that restarts, a cluster that does not answer: they come back
                status = JobStatus.from_message(self._refresh().quick_status(), self.location)
                if on_progress is not None and (last is None or status != replace(last, updated_at=status.updated_at)):
                    on_progress(status)
                last = status
                if status.is_over:
                    exit_deadline = exit_deadline or time.monotonic() + EXIT_TIMEOUT_S
                    if not self._backend.has_processes() or time.monotonic() > exit_deadline:
                        return status
            remaining_s = math.inf if deadline is None else deadline - time.monotonic()
            if remaining_s <= 0:
                phase = f" is still {last.phase}" if last is not None else " could not be reached"
                raise WaitTimedOut(f"job {self.name!r}{phase} after {timeout_s:g} s; it goes on")
            time.sleep(min(poll_s, remaining_s))

    def scale(self, workers: int | None = None, ps: int | None = None, batch_scale: int | None = None) -> str:
        """Asks for another number of workers or parameter servers, or for `batch_scale` global batches in an update.

        Returns what the master answers; training goes on meanwhile.
        """
        for name, count in (("workers", workers), ("ps", ps), ("batch_scale", batch_scale)):
            if count is not None and count < 1:
                raise SpecError(f"--{name}: expected at least 1; received {count}")
        if workers is None and ps is None and batch_scale is None:
            raise SpecError("how many? Give --workers N, --ps N, or both, or --batch_scale K")
        return self._refresh().scale(workers or 0, ps or 0, batch_scale or 0)

    def events(self) -> list[JobEvent]:
        """All recorded events, the oldest first."""
        backend = self._refresh()
        return [JobEvent.from_message(event) for event in backend.events()]

    def evaluations(self) -> list[LoggedEvaluation]:
        """Every evaluation of a training job, by step."""
        from elasticdl.jobs.history import read_evaluations

        return read_evaluations(
            {"kind": event.kind, "at": event.at, "step": event.step, "metrics": event.metrics}
            for event in self.events()
        )

    def logs(self, replica: str | None = None, follow: bool = False) -> Iterator[LogLine]:
        """What the processes of the job wrote, line by line.

        `replica` is worker-2, ps-0, master or launcher; None means all. With `follow`, goes on until the job is over.
        """
        backend = self._refresh()
        if replica is not None and replica not in ("master", "launcher"):
            check_replica(backend, replica)
        return (LogLine(writer, text) for writer, text in backend.logs(replica or "", follow))

    def draw_timeline(self, output: Path | None = None) -> Path:
        """Draws the timeline of the job as a PNG and returns its path.

        The default is timeline.png in the job's directory; for a job on a cluster, NAME.png here.
        """
        from elasticdl.jobs import timeline

        with self._refresh().open_directory() as directory:
            path = output or (directory.timeline if self.location == THIS_MACHINE else Path(f"{self.name}.png"))
            if not path.absolute().parent.is_dir():
                raise SpecError(f"--output: no directory {path.absolute().parent}")
            timeline.draw_timeline(directory, path)
        return path

    def read_journal(self) -> tuple[StoredJournal, JobSpec]:
        """The journal, and the job as its master knows it. SpecError if it cannot be read from this machine."""
        return self._refresh().read_journal()

    def evaluate(self, **options: Unpack[SubmissionOptions]) -> Job:
        """Submits a job that evaluates this job's model, and returns it; its `metrics` are the result.

        The model is the export of a job that succeeded, else its newest checkpoint. Data, model and placement are
        those of this job unless the options, such as `validation_data`, say otherwise.
        """
        from elasticdl.jobs import submission
        from elasticdl.jobs.description import JobRequest
        from elasticdl.jobs.interface import SubmissionReporter

        document = _evaluation_document(self.spec, self.status, options.get("validation_data"))
        request = JobRequest(JobKind.EVALUATION, document, options, context=self._backend.context)
        return Job(submission.launch_job(submission.resolve_request(request), SubmissionReporter()))

    def stop(self) -> str:
        """Stops the job: the running step ends, a checkpoint is written, all processes end. Does not wait for that.

        A job that waits in the queue is taken out of it. Go on later with `submit(job_name=…, resume=True)`.
        """
        return self._refresh().stop() or f"{self.name}: stopping, with a checkpoint"

    def kill(self, delete: bool = False, reason: str = KILL_REASON) -> str:
        """Ends all processes at once, without a checkpoint. With `delete`, logs, checkpoints and the name go, too.

        `reason` is what the status of the job says from then on.
        """
        return self._refresh().kill(delete=delete, reason=reason)

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stops the job with a checkpoint, if it is not over, and waits for its end."""
        if self.status.is_over:
            return
        with suppress(ElasticDLError):  # it may be over by now
            self.stop()
        self.wait(STOP_TIMEOUT_S)

    def _refresh(self) -> JobBackend:
        self._backend = self._backend.refresh()
        return self._backend


def find(name: str = LAST, *, on: str | None = None, namespace: str | None = None, context: str | None = None) -> Job:
    """The job called `name`: a whole name, a prefix that only one job has, or `last` for the newest.

    Looks on this machine, then, if a cluster is configured, in the namespace of its current context. `on` is "local"
    or "kubernetes". Raises JobNotFound with the nearest name.
    """
    return Job(lookup.find_job(name, lookup.JobLocation.from_options(on, namespace, context)))


def list_jobs(
    *,
    on: str | None = None,
    namespace: str | None = None,
    context: str | None = None,
    warn: Callable[[str], None] = _log.warning,
) -> list[Job]:
    """The jobs of this machine and of the cluster of the current context, the newest of each last.

    Calls `warn` if the cluster does not answer, and leaves its jobs out.
    """
    location = lookup.JobLocation.from_options(on, namespace, context)
    return [Job(backend) for backend in lookup.list_jobs(location, warn)]


def check_replica(job: JobBackend, replica: str) -> None:
    """Raises SpecError, with the replicas that there are, if `replica` never wrote anything."""
    role = replica.rpartition("-")[0]
    replicas = job.logged_replicas(role) if role in ("worker", "ps") else []
    if replica not in replicas:
        there = f"; there are {', '.join(replicas)}" if replicas else f"; no {role or 'replica'} has started yet"
        raise SpecError(f"job {job.name!r} has no {replica}" + did_you_mean(replica, replicas, there))


def _evaluation_document(spec: JobSpec, status: JobStatus, validation_data: Any) -> dict[str, Any]:
    """Describes the job that evaluates the model of `spec`."""
    if spec.kind is not JobKind.TRAINING or spec.model is None:
        raise SpecError(f"job {spec.name!r} is of kind {spec.kind}; expected a training job with a model file")
    if not (validation_data or spec.data.validation):
        raise SpecError(f"job {spec.name!r} has no validation data; give validation_data")
    has_export = status.phase is Phase.SUCCEEDED and bool(spec.output)
    model = spec.output if has_export else status.checkpoint
    if not model:
        raise JobFailed(f"job {spec.name!r} has no model yet: neither an export nor a checkpoint")
    if not spec.is_durable(model):
        raise SpecError(f"job {spec.name!r}: {model} went with its pod; give --output a place on a --volume")
    written = spec.model_dump(mode="json", exclude_none=True)
    data = {key: value for key, value in written["data"].items() if key not in ("training", "prediction")}
    workers = {key: written["workers"][key] for key in ("device", "cpu_capability", "address", "threads")}
    document = {
        "kind": JobKind.EVALUATION.value,
        "model": written["model"],
        "data": data,
        "plan": {key: written["plan"][key] for key in ("minibatch_size", "precision")},
        "workers": {**workers, "replicas": 1},
        "checkpoint": {"init_from": model},
        "security": written["security"],
    }
    if "cluster" in written:
        document["cluster"] = written["cluster"]
    return document
