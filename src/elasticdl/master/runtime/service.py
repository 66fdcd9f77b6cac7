"""The Master service: turns calls into events and waits for their results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from elasticdl.clock import Clock, WallClock
from elasticdl.errors import AccessDenied, SpecError
from elasticdl.launcher.certificate_manager import to_datetime
from elasticdl.master.machine import events as ev
from elasticdl.master.machine.state import Ledger, MasterState
from elasticdl.master.runtime import codec
from elasticdl.master.views import status
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.server import ReplicaStream
from elasticdl.spec import LrScaling, Phase
from elasticdl.spec.ids import PsId, WorkerId
from elasticdl.tls import Role

if TYPE_CHECKING:
    from elasticdl.launcher.certificate_authority import CertificateAuthority
    from elasticdl.master.runtime.loop import MasterLoop


class MasterServicer:
    """`authority` issues certificates; without one the master issues none. `clock` gives their wall time."""

    def __init__(
        self, loop: MasterLoop, authority: CertificateAuthority | None = None, clock: Clock | None = None
    ) -> None:
        self._loop = loop
        self._authority = authority
        self._clock = clock or WallClock()

    async def enroll(self, request: pb.EnrollRequest) -> pb.EnrollReply:
        """Issues a certificate; the server has checked that the caller may have this name."""
        if self._authority is None:
            raise SpecError("this master issues no certificates: those of a local job come from its launcher")
        job, replica = self._loop.machine.state, request.replica
        check_launched(job.ledger, replica)
        now, lifetime_s = to_datetime(self._clock.now()), job.spec.security.certificate_lifetime_s
        return pb.EnrollReply(
            certificate=self._authority.sign_request(request.csr, Role.from_replica(replica), replica, now, lifetime_s)
        )

    async def session(self, messages: AsyncIterator[pb.WorkerMessage], stream: ReplicaStream) -> None:
        worker: WorkerId | None = None
        is_ps = False
        try:
            async for message in messages:
                if message.WhichOneof("message") == "hello":
                    worker, is_ps = WorkerId(message.hello.replica), bool(message.hello.ps_address)
                    self._loop.streams[worker] = stream
                if worker is None:
                    raise SpecError(f"expected Hello first, received {message.WhichOneof('message')}")
                event = (
                    codec.event_from_ps(PsId(worker), message) if is_ps else codec.event_from_worker(worker, message)
                )
                if event is not None:
                    self._loop.submit(event)
        finally:
            # Unless the worker has reconnected already, with a new stream.
            if worker is not None and self._loop.streams.get(worker) is stream:
                del self._loop.streams[worker]
                self._loop.submit(ev.SessionLost(worker))

    async def exchange(self, request: pb.ExchangeRequest) -> pb.ExchangeReply:
        return codec.exchange_reply(await self._loop.exchange(codec.event_from_exchange(request)))

    async def watch(self, request: pb.WatchRequest) -> AsyncIterator[pb.JobStatus]:
        interval_s = 1.0 / max(request.max_hz, 0.01) if request.max_hz else 1.0
        job = self._loop.machine.state
        with self._loop.watch_changes() as changed:
            while True:
                changed.clear()
                is_over, reported_workers = job.is_over, job.ledger.membership.running_count
                yield status.job_status(job, self._loop.clock.now())
                if request.once or is_over:
                    return
                await self._wait_for_change(changed, reported_workers, interval_s)

    async def _wait_for_change(self, changed: asyncio.Event, reported_workers: int, interval_s: float) -> None:
        """Waits until something has changed and `interval_s` are over.

        Returns at once when the job ends, or has fewer running workers than were reported: a scheduler may wait for
        their devices.
        """
        members, has_changed = self._loop.machine.state.ledger.membership, False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(interval_s):
                while members.running_count >= reported_workers and not self._loop.over.is_set():
                    await changed.wait()
                    changed.clear()
                    has_changed = True
        if not has_changed:
            await changed.wait()

    async def scale(self, request: pb.ScaleRequest) -> pb.Accepted:
        job = self._loop.machine.state
        _check_scale_request(job, request)
        changes = [
            f"from {current} to {desired} {noun}"
            for current, desired, noun in (
                (job.ledger.desired_workers, request.workers, "workers"),
                (job.ledger.fleet.desired, request.ps, "ps"),
                (job.observed.batch_scale or 1, request.batch_scale, "batches per update"),
            )
            if desired
        ]
        await self._loop.submit_and_wait(ev.ScaleRequested(request.workers, request.ps, request.batch_scale))
        return pb.Accepted(message=f"scaling {' and '.join(changes)}")

    async def stop(self, request: pb.StopRequest) -> pb.Accepted:
        job = self._loop.machine.state
        if job.is_over:
            return pb.Accepted(message=f"the job is already over: {job.ledger.phase.name}")
        await self._loop.submit_and_wait(
            ev.StopRequested(request.at_once, request.reason or "requested by a client", request.is_training_done)
        )
        return pb.Accepted(message=job.strategy.describe_stop(at_once=request.at_once))


def check_launched(ledger: Ledger, replica: str) -> None:
    """Raises AccessDenied unless this master has launched the replica and it has not ended."""
    worker, ps = ledger.membership.workers.get(WorkerId(replica)), ledger.fleet.ps.get(PsId(replica))
    is_launched = (worker.is_present and not worker.is_external) if worker else ps is not None and ps.is_present
    if not is_launched:
        raise AccessDenied(
            f"expected a replica that this master has launched and that has not ended; received {replica!r}"
        )


def _check_scale_request(job: MasterState, request: pb.ScaleRequest) -> None:
    low, high = job.spec.workers.min, job.spec.workers.max
    if not request.workers and not request.ps and not request.batch_scale:
        raise SpecError("expected a number of workers or ps, or a scale of the batch; received none")
    if request.workers and not low <= request.workers <= high:
        raise SpecError(
            f"workers: expected {low} to {high} (min and max of this job), received {request.workers}; "
            f"choose a number between them, or start the job with another --max_workers"
        )
    if request.ps and not job.ledger.fleet.desired:
        raise SpecError(
            f"ps: expected none, since this job runs with {job.spec.strategy}, received {request.ps}; "
            "start it with --distribution_strategy=ParameterServerStrategy"
        )
    if request.ps and request.ps <= job.spec.ps.backups:
        raise SpecError(
            f"ps: expected {job.spec.ps.backups + 1} or more, since every slot has a backup on another ps, "
            f"received {request.ps}; choose a larger number, or start the job with --ps_backups=0"
        )
    if request.batch_scale and job.spec.plan.lr_scaling is LrScaling.NONE:
        raise SpecError(
            f"batch_scale: expected none, since the batch of this job stays as it is, received {request.batch_scale}; "
            "start it with --adaptive_batch"
        )
    if request.batch_scale > job.max_batch_scale:
        raise SpecError(
            f"batch_scale: expected 1 to {job.max_batch_scale}, received {request.batch_scale}; "
            "choose a number between them, or start the job with another --max_batch_size"
        )
    if job.ledger.phase.name not in (Phase.PENDING, Phase.RUNNING):
        raise SpecError(f"the job is {job.ledger.phase.name}: it can no longer be scaled")
