"""A client of the master for users and for workers that take leases. It reconnects, and raises ElasticDL's errors."""

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
from elasticdl.spec import JobSpec, Phase
from elasticdl.spec.directory import JobDirectory

Reply = TypeVar("Reply")

# Between attempts to reconnect: short at first, because a restarted master is back within a second.
_MIN_DELAY_S, _MAX_DELAY_S = 0.02, 0.5
# After a status with one of these phases no other follows.
_FINAL_PHASES = frozenset(phase for phase in Phase if phase.is_over)


class MasterClient:
    """Calls to the master of one job. Each call waits up to `timeout_s` for a master that is unreachable.

    Then it raises MasterUnreachable; it raises AccessDenied for a wrong token, SpecError for a wrong argument, and
    RunSuperseded if the job is in another run than the caller.
    """

    def __init__(
        self,
        directory: JobDirectory,
        spec: JobSpec,
        timeout_s: float,
        metadata: tuple[tuple[str, str], ...],
        identity: tls.TlsCredentials | None,
    ) -> None:
        self._directory = directory
        self._spec = spec
        self._timeout_s = timeout_s
        self._metadata = metadata
        self._identity = identity
        self._channel: Any = None
        self._address = ""

    @classmethod
    @contextmanager
    def connect(
        cls, directory: JobDirectory, timeout_s: float, run: int | None = None, replica: str = tls.Role.CLIENT
    ) -> Iterator[MasterClient]:
        """A client with the token of the job; the first call opens the connection.

        `run` is that of a worker or ps: only they may call `exchange` and `enroll`. `replica` is the caller, whose
        certificate is used in a job with TLS.
        """
        spec = directory.load_spec()
        metadata = security.call_metadata(directory.load_token(), run)
        client = cls(directory, spec, timeout_s, metadata, directory.tls_credentials(spec, replica))
        try:
            yield client
        finally:
            client._disconnect()

    def watch(self, max_hz: float, once: bool = False) -> Iterator[pb.JobStatus]:
        """Yields the status of the job now and after each change; ends after a status with a final phase.

        Continues after a restart of the master. It also ends if the master is gone and the job has its result.
        """
        request = pb.WatchRequest(max_hz=max_hz, once=once)
        outage = _MasterOutage(self._timeout_s)
        while True:
            try:
                for status in self._bind(methods.WATCH)(request, metadata=self._metadata):
                    outage.reset()
                    yield status
                    if once or status.phase in _FINAL_PHASES:
                        return
                outage.wait_or_raise(MasterUnreachable(f"the master at {self._address} ended the stream"))
            except grpc.RpcError as exc:
                if self._is_over():
                    return
                outage.wait_or_raise(channels.error_from_grpc(exc, self._address), exc)
            except MasterUnreachable as exc:
                if self._is_over():
                    return
                outage.wait_or_raise(exc)
            self._disconnect()

    def status(self) -> pb.JobStatus:
        for status in self.watch(max_hz=1.0, once=True):
            return status
        raise MasterUnreachable(f"the job in {self._directory.root} is over; its result is in {self._directory.result}")

    def scale(self, workers: int = 0, ps: int = 0, batch_scale: int = 0) -> str:
        """Sets the desired number of workers, ps or batches per update; 0: unchanged. Returns the master's message."""
        request = pb.ScaleRequest(workers=workers, ps=ps, batch_scale=batch_scale)
        reply: pb.Accepted = self._call(methods.SCALE, request)
        return reply.message

    def stop(self, at_once: bool, reason: str) -> str:
        """Stops the job, with a checkpoint or at once. Returns the master's message."""
        reply: pb.Accepted = self._call(methods.STOP, pb.StopRequest(at_once=at_once, reason=reason))
        return reply.message

    def finish_training(self, reason: str) -> None:
        """Ends a training by leases before the end of its data, with a checkpoint and an exported model."""
        self._call(methods.STOP, pb.StopRequest(reason=reason, is_training_done=True))

    def enroll(self, replica: str, csr: bytes) -> str:
        """Returns the certificate of a replica in PEM, for a signing request in DER."""
        reply: pb.EnrollReply = self._call(methods.ENROLL, pb.EnrollRequest(replica=replica, csr=csr))
        return reply.certificate

    def exchange(self, request: pb.ExchangeRequest) -> pb.ExchangeReply:
        """Reports on leases and takes more. The request is repeated while the master is away, and counts once."""
        reply: pb.ExchangeReply = self._call(methods.EXCHANGE, request)
        return reply

    def _call(self, method: methods.Method, request: Any) -> Any:
        return self._call_with_retries(
            lambda: self._bind(method)(request, timeout=self._spec.timing.rpc_timeout_s, metadata=self._metadata)
        )

    def _call_with_retries(self, call: Callable[[], Reply]) -> Reply:
        outage = _MasterOutage(self._timeout_s)
        while True:
            try:
                return call()
            except grpc.RpcError as exc:
                outage.wait_or_raise(channels.error_from_grpc(exc, self._address), exc)
            except MasterUnreachable as exc:
                outage.wait_or_raise(exc)
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
    """How long the master has been unreachable, and how long to wait before the next attempt."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self.reset()

    def reset(self) -> None:
        self._since = time.monotonic()
        self._attempts = 0

    def wait_or_raise(self, error: Exception, cause: Exception | None = None) -> None:
        """Sleeps before the next attempt. Raises `error` if an attempt cannot help or the timeout is over."""
        delay_s = backoff_delay(self._attempts, _MIN_DELAY_S, _MAX_DELAY_S)
        if not isinstance(error, MasterUnreachable) or time.monotonic() - self._since + delay_s > self._timeout_s:
            raise error from cause
        self._attempts += 1
        time.sleep(delay_s)
