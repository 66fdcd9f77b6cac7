"""Prometheus metrics of one job, on a port of their own."""

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
    """`observe` copies the job's state into gauges, from which the http thread answers."""

    def __init__(self, name: str) -> None:
        self.registry = CollectorRegistry()
        self._job = name
        self._gauges = {
            key: Gauge(f"elasticdl_{key}", text, ["job"], registry=self.registry)
            for key, text in (
                ("step", "Steps applied"),
                ("records", "Records trained, evaluated or predicted"),
                ("loss", "Loss of the newest step"),
                ("epoch_loss", "Mean loss of the newest epoch that ended"),
                ("records_per_second", "Throughput, smoothed"),
                ("learning_rate", "Learning rate of the newest step"),
                ("gradient_square", "Squared norm of the gradient, estimated"),
                ("gradient_variance", "Variance of the gradient at one global batch, estimated"),
                ("batch_scale", "Global batches that make an update"),
                ("progress", "Steps of one global batch that would have come as far"),
                ("round", "Id of the round that trains"),
                ("desired_workers", "Workers that the job should have"),
                ("checkpoint_step", "Step of the newest checkpoint, -1 for none"),
                ("checkpoint_failures", "Checkpoints that could not be written"),
                ("bad_records", "Records that were skipped, since they cannot be read or understood"),
                ("data_waits", "Times that data could not be read and was tried again"),
                ("worker_failures", "Crashes counted against the failure budget"),
                ("seconds_without_progress", "Time since a step ended, while the job trains"),
                ("stalled_workers", "Workers that have come to no step for too long, and are replaced soon"),
                ("stalls", "Workers and ps replaced because they made no progress"),
                ("master_restarts", "Times the master came back"),
                ("shards", "Shards of the running evaluation or prediction"),
                ("shards_done", "Shards of it that are done"),
            )
        }
        self._ps_states = Gauge("elasticdl_ps", "Ps by state", ["job", "state"], registry=self.registry)
        self._ps = {
            key: Gauge(f"elasticdl_ps_{key}", text, ["job", "ps"], registry=self.registry)
            for key, text in (
                ("slots", "Slots it holds"),
                ("rows", "Rows in its tables"),
                ("memory_bytes", "Memory of its tables"),
                ("requests", "Requests answered"),
                ("requests_per_second", "Requests answered, smoothed"),
                ("pushes", "Pushes applied"),
                ("repeated_pushes", "Pushes that were in the rows already"),
                ("refused", "Requests refused"),
                ("malformed", "Messages that were none"),
                ("lock_wait_seconds", "Time its threads have waited for each other"),
                ("staleness", "Mean staleness of all pushes, in updates"),
                ("clock", "Updates"),
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
        shown = status.job_status(job, now)
        values = {
            "step": shown.step,
            "records": shown.records,
            "loss": shown.loss,
            "epoch_loss": shown.epoch_loss.loss,
            "records_per_second": shown.records_per_s,
            "learning_rate": job.observed.learning_rate,
            "gradient_square": shown.gradient_square,
            "gradient_variance": shown.gradient_variance,
            "batch_scale": shown.batch_scale,
            "progress": shown.progress,
            "round": shown.round,
            "desired_workers": shown.desired_workers,
            "checkpoint_step": shown.checkpoint_step,
            "checkpoint_failures": job.ledger.notices.get(notices.CHECKPOINT_FAILED, 0),
            "bad_records": len(job.ledger.bad_records),
            "data_waits": job.ledger.notices.get(notices.DATA_WAITS, 0),
            "worker_failures": job.ledger.failure_budget.spent,
            "seconds_without_progress": _seconds_without_progress(job, now),
            "stalled_workers": sum(bool(worker.stall_reason) for worker in job.ledger.membership.present_workers()),
            "stalls": job.ledger.stalls,
            "master_restarts": job.ledger.master_starts - 1,
            "shards": shown.shards,
            "shards_done": shown.shards_done,
        }
        for key, value in values.items():
            self._gauges[key].labels(self._job).set(value)
        counted = Counter(worker.state for worker in job.ledger.membership.workers.values())
        for state in WorkerState:
            self._workers.labels(self._job, state.value).set(counted[state])
        self._observe_ps(job, shown.ps)
        for metric, measured in shown.metrics.items():
            self._evaluation.labels(self._job, metric).set(measured)

    def _observe_ps(self, job: MasterState, shown: Iterable[pb.PsStatus]) -> None:
        """Of those that are here; one that is gone has no gauges any more."""
        if not job.ledger.fleet.desired:
            return
        counted = Counter(ps.state for ps in job.ledger.fleet.ps.values())
        for state in PsReplicaState:
            self._ps_states.labels(self._job, state.value).set(counted[state])
        for gauge in self._ps.values():
            gauge.clear()
        for ps in shown:
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
    """Seconds since a step ended, or since this master came; 0.0 where no step is awaited."""
    is_awaited = job.strategy.expects_steps() and isinstance(job.ledger.phase, RunningPhase)
    return max(0.0, now - max(job.observed.progressed_at, job.observed.watching_since)) if is_awaited else 0.0
