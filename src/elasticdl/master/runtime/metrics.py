"""Prometheus metrics of one job, on their own port."""

from __future__ import annotations

import hmac
import logging
from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from elasticdl.http_server import HttpRequest, HttpResponse, HttpServer
from elasticdl.master.machine import notices
from elasticdl.master.machine.membership import WorkerState
from elasticdl.master.machine.phase import RunningPhase
from elasticdl.master.machine.state import MasterState
from elasticdl.master.ps_fleet.fleet import PsReplicaState
from elasticdl.master.views import status
from elasticdl.rpc import elasticdl_pb2 as pb

_log = logging.getLogger(__name__)


class PrometheusMetrics:
    """Gauges of a job: `observe` copies its state into them, and the thread of the HTTP server reads them."""

    def __init__(self, name: str) -> None:
        self.registry = CollectorRegistry()
        self._job = name
        self._gauges = {
            key: Gauge(f"elasticdl_{key}", text, ["job"], registry=self.registry)
            for key, text in (
                ("step", "Steps applied"),
                ("records", "Records trained, evaluated or predicted"),
                ("loss", "Loss of the newest step"),
                ("epoch_loss", "Mean loss of the last complete epoch"),
                ("records_per_second", "Throughput, smoothed"),
                ("learning_rate", "Learning rate of the newest step"),
                ("gradient_square", "Squared norm of the gradient, estimated"),
                ("gradient_variance", "Variance of the gradient at one global batch, estimated"),
                ("batch_scale", "Global batches per update"),
                ("progress", "Equivalent number of steps of one global batch"),
                ("round", "Id of the round that trains"),
                ("desired_workers", "Desired number of workers"),
                ("checkpoint_step", "Step of the newest checkpoint, -1 for none"),
                ("checkpoint_failures", "Checkpoints that could not be written"),
                ("bad_records", "Records skipped because they cannot be read"),
                ("data_waits", "Failed attempts to read data that were retried"),
                ("worker_failures", "Crashes counted against the failure budget"),
                ("seconds_without_progress", "Time since the last step, while the job trains"),
                ("stalled_workers", "Workers without a step for so long that they will be replaced"),
                ("stalls", "Workers and ps replaced because they made no progress"),
                ("master_restarts", "Restarts of the master"),
                ("shards", "Shards of the running evaluation or prediction"),
                ("shards_done", "Finished shards of the running evaluation or prediction"),
            )
        }
        self._ps_states = Gauge("elasticdl_ps", "Ps by state", ["job", "state"], registry=self.registry)
        self._ps = {
            key: Gauge(f"elasticdl_ps_{key}", text, ["job", "ps"], registry=self.registry)
            for key, text in (
                ("slots", "Slots of the ps"),
                ("rows", "Rows of the ps"),
                ("memory_bytes", "Memory of the rows"),
                ("requests", "Requests answered"),
                ("requests_per_second", "Requests answered, smoothed"),
                ("pushes", "Pushes applied"),
                ("repeated_pushes", "Repeated pushes, which are not applied again"),
                ("refused", "Requests refused"),
                ("malformed", "Malformed messages"),
                ("lock_wait_seconds", "Time that its threads have waited for locks"),
                ("staleness", "Mean staleness of all pushes, in updates"),
                ("clock", "Number of updates"),
            )
        }
        self._workers = Gauge("elasticdl_workers", "Workers by state", ["job", "state"], registry=self.registry)
        self._evaluation = Gauge("elasticdl_metric", "Newest evaluation", ["job", "metric"], registry=self.registry)

    def start_server(self, address: str, port: int, token: str) -> HttpServer:
        """Serves the metrics on `port`, or on any free port if that is 0 or in use.

        With a `token`, requests must have it as their bearer token.
        """
        expected = f"Bearer {token}".encode()

        def answer(request: HttpRequest) -> HttpResponse:
            if token and not hmac.compare_digest(request.headers.get("authorization", "").encode(), expected):
                return HttpResponse(401, b"expected the token of this job as a bearer\n")
            return HttpResponse(200, generate_latest(self.registry), CONTENT_TYPE_LATEST)

        server = HttpServer(address, port, answer)
        try:
            server.start()
        except OSError as exc:
            _log.warning("metrics: cannot listen on %s:%d (%s); taking any free port", address, port, exc.strerror)
            server = HttpServer(address, 0, answer)
            server.start()
        return server

    def observe(self, job: MasterState, now: float) -> None:
        message = status.job_status(job, now)
        values = {
            "step": message.step,
            "records": message.records,
            "loss": message.loss,
            "epoch_loss": message.epoch_loss.loss,
            "records_per_second": message.records_per_s,
            "learning_rate": job.observed.learning_rate,
            "gradient_square": message.gradient_square,
            "gradient_variance": message.gradient_variance,
            "batch_scale": message.batch_scale,
            "progress": message.progress,
            "round": message.round,
            "desired_workers": message.desired_workers,
            "checkpoint_step": message.checkpoint_step,
            "checkpoint_failures": job.ledger.notices.get(notices.CHECKPOINT_FAILED, 0),
            "bad_records": len(job.ledger.bad_records),
            "data_waits": job.ledger.notices.get(notices.DATA_WAITS, 0),
            "worker_failures": job.ledger.failure_budget.spent,
            "seconds_without_progress": _seconds_without_progress(job, now),
            "stalled_workers": sum(bool(worker.stall_reason) for worker in job.ledger.membership.present_workers()),
            "stalls": job.ledger.stalls,
            "master_restarts": job.ledger.master_starts - 1,
            "shards": message.shards,
            "shards_done": message.shards_done,
        }
        for key, value in values.items():
            self._gauges[key].labels(self._job).set(value)
        state_counts = Counter(worker.state for worker in job.ledger.membership.workers.values())
        for state in WorkerState:
            self._workers.labels(self._job, state.value).set(state_counts[state])
        self._observe_ps(job, message.ps)
        for metric, value in message.metrics.items():
            self._evaluation.labels(self._job, metric).set(value)

    def _observe_ps(self, job: MasterState, statuses: Iterable[pb.PsStatus]) -> None:
        """Sets the gauges of present ps; those of a ps that has ended are removed."""
        if not job.ledger.fleet.desired:
            return
        state_counts = Counter(ps.state for ps in job.ledger.fleet.ps.values())
        for state in PsReplicaState:
            self._ps_states.labels(self._job, state.value).set(state_counts[state])
        for gauge in self._ps.values():
            gauge.clear()
        for ps in statuses:
            if ps.state not in ("serving", "draining"):
                continue
            values = {
                "slots": ps.slots,
                "rows": ps.heartbeat.rows,
                "memory_bytes": ps.heartbeat.bytes,
                "requests": ps.heartbeat.requests,
                "requests_per_second": ps.requests_per_s,
                "pushes": ps.heartbeat.applied,
                "repeated_pushes": ps.heartbeat.repeated,
                "refused": ps.heartbeat.refused,
                "malformed": ps.heartbeat.malformed,
                "lock_wait_seconds": ps.heartbeat.lock_wait_s,
                "staleness": status.mean_staleness(tuple(ps.heartbeat.staleness)),
                "clock": ps.heartbeat.clock,
            }
            for key, value in values.items():
                self._ps[key].labels(self._job, ps.id).set(value)


def _seconds_without_progress(job: MasterState, now: float) -> float:
    """Seconds since the last step, or since this master started; 0.0 if no step is expected."""
    is_step_expected = job.strategy.expects_steps() and isinstance(job.ledger.phase, RunningPhase)
    return max(0.0, now - max(job.observed.progressed_at, job.observed.watching_since)) if is_step_expected else 0.0
