"""A client of the master for people and lease takers: plain calls, our errors, reconnects."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc

from elasticdl import tls
from elasticdl.errors import MasterUnreachable
from elasticdl.retry import backoff_delay
from elasticdl.rpc import channel as channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc import methods, security
from elasticdl.spec import Phase
from elasticdl.spec.directory import JobDirectory

Reply = TypeVar("Reply")

# Reconnecting: short at first, since a master that is started again is back within a second.
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.02, 0.5
# Phases after which the master says no more.
_FINAL_PHASES = frozenset(phase for phase in Phase if phase.is_over)


class MasterClient:
    """Calls to the master of one job. Every call waits up to `timeout_s` for a master that is away.

    Raises MasterUnreachable after that, AccessDenied for a wrong token, SpecError for a wrong argument. `run` is that
    of a worker or ps, which alone may `exchange` and `enroll`; RunOver where the job is in another. `replica` is who
    calls: in a job with TLS it shows that certificate.
    """

    def __init__(
        self, directory: JobDirectory, timeout_s: float, run: int | None = None, replica: str = tls.Role.CLIENT
    ) -> None:
        self._directory = directory
        self._timeout_s = timeout_s
        self._spec = directory.load_spec()
        self._metadata = security.call_metadata(directory.load_token(), run)
        self._identity = directory.tls_credentials(self._spec, replica)
        self._channel: Any = None
        self._address = ""

    @classmethod
    @contextmanager
    def connect(
        cls, directory: JobDirectory, timeout_s: float, run: int | None = None, replica: str = tls.Role.CLIENT
    ) -> Iterator[MasterClient]:
        client = cls(directory, timeout_s, run, replica)
        try:
            yield client
        finally:
            client._disconnect()

    def watch(self, max_hz: float, once: bool = False) -> Iterator[pb.JobStatus]:
        """The job now, and again whenever it changed; ends after a status whose phase is final.

        Survives a restart of the master. Ends silently, too, when the master is gone and the job has its result.
        """
        request = pb.WatchRequest(max_hz=max_hz, once=once)
        away = _MasterOutage(self._timeout_s)
        while True:
            try:
                for status in self._bind(methods.WATCH)(request, metadata=self._metadata):
                    away.reset()
                    yield status
                    if once or status.phase in _FINAL_PHASES:
                        return
                away.wait_or_raise(MasterUnreachable(f"the master at {self._address} ended the stream"))
            except grpc.RpcError as exc:
                if self._is_over():
                    return
                away.wait_or_raise(channels.error_from_grpc(exc, self._address), exc)
            except MasterUnreachable as exc:
                if self._is_over():
                    return
                away.wait_or_raise(exc)
            self._disconnect()

    def status(self) -> pb.JobStatus:
        for status in self.watch(max_hz=1.0, once=True):
            return status
        raise MasterUnreachable(f"the job in {self._directory.root} is over; its result is in {self._directory.result}")

    def scale(self, workers: int = 0, ps: int = 0, batch_scale: int = 0) -> str:
        """Wish for another number of workers, of ps, or of batches an update; 0: as before. What comes of it."""
        request = pb.ScaleRequest(workers=workers, ps=ps, batch_scale=batch_scale)
        reply: pb.Accepted = self._call(methods.SCALE, request)
        return reply.message

    def stop(self, at_once: bool, reason: str) -> str:
        """End the job: with a checkpoint, or at once."""
        reply: pb.Accepted = self._call(methods.STOP, pb.StopRequest(at_once=at_once, reason=reason))
        return reply.message

    def finish_training(self, reason: str) -> None:
        """The training of this job by leases is done, though there is data left: with a checkpoint and a model."""
        self._call(methods.STOP, pb.StopRequest(reason=reason, is_training_done=True))

    def enroll(self, replica: str, csr: bytes) -> str:
        """The certificate of a replica, in PEM, for the key of a signing request in DER."""
        reply: pb.EnrollReply = self._call(methods.ENROLL, pb.EnrollRequest(replica=replica, csr=csr))
        return reply.certificate

    def exchange(self, request: pb.ExchangeRequest) -> pb.ExchangeReply:
        """Report on leases and take more. Repeats the same request while the master is away: it counts once."""
        reply: pb.ExchangeReply = self._call(methods.EXCHANGE, request)
        return reply

    def _call(self, method: methods.Method, request: Any) -> Any:
        return self._retrying(
            lambda: self._bind(method)(request, timeout=self._spec.timing.rpc_timeout_s, metadata=self._metadata)
        )

    def _retrying(self, attempt: Callable[[], Reply]) -> Reply:
        away = _MasterOutage(self._timeout_s)
        while True:
            try:
                return attempt()
            except grpc.RpcError as exc:
                away.wait_or_raise(channels.error_from_grpc(exc, self._address), exc)
            except MasterUnreachable as exc:
                away.wait_or_raise(exc)
            self._disconnect()

    def _bind(self, method: methods.Method) -> Any:
        if self._channel is None:
            self._address = channels.master_address(self._directory)
            self._channel = channels.open_channel(self._address, self._identity)
        return method.bind(self._channel)

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _is_over(self) -> bool:
        return self._directory.result.exists()


class _MasterOutage:
    """How long the master has been away, and how long to wait before the next attempt."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self.reset()

    def reset(self) -> None:
        self._since = time.monotonic()
        self._attempts = 0

    def wait_or_raise(self, error: Exception, cause: Exception | None = None) -> None:
        """Sleep before the next attempt; raises `error` where no attempt can help or time is up."""
        pause_s = backoff_delay(self._attempts, _MIN_PAUSE_S, _MAX_PAUSE_S)
        if not isinstance(error, MasterUnreachable) or time.monotonic() - self._since + pause_s > self._timeout_s:
            raise error from cause
        self._attempts += 1
        time.sleep(pause_s)
