"""The gRPC server of the master, around a service object that does not use gRPC."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import grpc
import grpc.aio

from elasticdl import tls
from elasticdl.errors import AccessDenied, ElasticDLError, SpecError, is_machine_error
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc import methods, security
from elasticdl.spec import JobSpec
from elasticdl.tls import PeerIdentity, Role

_SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),  # otherwise two masters could share one port unnoticed
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 20),  # a client that pings every 2 s makes none
    # Limits what a stranger can hold: a connection for as long as a handshake or an idle one may last, this number of
    # calls on it, each refused when its headers arrive, and one window of the data that it sends with them.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.max_concurrent_streams", 100),
    ("grpc.max_metadata_size", 8 << 10),
    ("grpc.http2.bdp_probe", 0),  # keeps windows at their size
    ("grpc.http2.lookahead_bytes", 64 << 10),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
)
_log = logging.getLogger(__name__)


class ReplicaStream:
    """Messages of the master to one worker or ps, while its stream lives."""

    def __init__(self) -> None:
        self._outbox: asyncio.Queue[pb.MasterMessage | None] = asyncio.Queue()

    def send(self, message: pb.MasterMessage) -> None:
        """Queues a message; never blocks. It is lost if the stream breaks first: the greeting after that repeats it."""
        self._outbox.put_nowait(message)

    def close(self) -> None:
        """Ends the stream after the queued messages."""
        self._outbox.put_nowait(None)

    async def outgoing_messages(self) -> AsyncIterator[pb.MasterMessage]:
        while (message := await self._outbox.get()) is not None:
            yield message


class MasterService(Protocol):
    """The calls that a master answers. A SpecError reaches the caller as INVALID_ARGUMENT."""

    async def enroll(self, request: pb.EnrollRequest) -> pb.EnrollReply: ...

    async def session(self, messages: AsyncIterator[pb.WorkerMessage], stream: ReplicaStream) -> None:
        """Serves one worker or ps until its stream ends or breaks; then this coroutine ends or is cancelled."""

    async def exchange(self, request: pb.ExchangeRequest) -> pb.ExchangeReply: ...

    def watch(self, request: pb.WatchRequest) -> AsyncIterator[pb.JobStatus]: ...

    async def scale(self, request: pb.ScaleRequest) -> pb.Accepted: ...

    async def stop(self, request: pb.StopRequest) -> pb.Accepted: ...


class MasterServer:
    """Listens between `start` and `stop`. Refuses calls without the job's token, and calls that a role may not make.

    It also refuses workers and ps of an earlier run of the job, which must end.
    """

    def __init__(
        self, service: MasterService, spec: JobSpec, token: str, run: int, identity: tls.TlsCredentials | None
    ) -> None:
        self._service = service
        self._spec = spec
        self._token = token
        self._run = run
        self._identity = identity
        self._server: Any = None

    async def start(self, port: int = 0) -> str:
        """Listens on `port`, or on any free port if that is in use. Returns the address to connect to."""
        host = self._spec.workers.address
        for candidate in (port, 0) if port else (0,):
            server = grpc.aio.server(options=_SERVER_OPTIONS)
            job = self._identity.job if self._identity else ""
            server.add_generic_rpc_handlers((_AuthorizingHandler(self._service, self._token, self._run, job),))
            try:
                bound_port = self._bind(server, f"{host}:{candidate}")
            except RuntimeError as exc:
                if candidate == 0:
                    raise bind_error(host, exc) from exc
                continue
            await server.start()
            self._server = server
            return f"{host}:{bound_port}"
        raise AssertionError("the last candidate either binds or raises")

    def _bind(self, server: Any, address: str) -> int:
        credentials = security.server_credentials(self._identity)
        if credentials is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, credentials))

    async def wait_for_failure(self) -> None:
        """Waits until the server ends although `stop` was not called. Then raises RuntimeError."""
        await asyncio.shield(self._server.wait_for_termination())
        raise RuntimeError("the gRPC server has ended by itself")

    async def stop(self, grace_s: float) -> None:
        if self._server is not None:
            await self._server.stop(grace_s)


def bind_error(host: str, grpc_error: RuntimeError) -> Exception:
    """The reason why grpc could not listen, which it does not tell.

    SpecError for an address of another machine; OSError for what may pass, such as missing file descriptors.
    """
    try:
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        with socket.create_server((host, 0), family=addresses[0][0]):
            return OSError(f"{host}: {grpc_error}")  # it is possible by now
    except socket.gaierror as exc:
        may_pass = exc.errno in (socket.EAI_AGAIN, socket.EAI_MEMORY, socket.EAI_SYSTEM)
        problem: OSError = exc
    except OSError as exc:
        may_pass, problem = is_machine_error(exc), exc
    if may_pass:
        return problem
    return SpecError(
        f"workers.address: expected an address of this machine to listen on, received {host!r} ({problem.strerror})"
    )


class _AuthorizingHandler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Finds the handler of a call, or one that refuses it."""

    def __init__(self, service: MasterService, token: str, run: int, job: str) -> None:
        self._token = token
        self._run = run
        behaviors: dict[methods.Method, Callable[..., Any]] = {
            methods.ENROLL: _unary_behavior(service.enroll, job, _check_enroll, Role.WORKER, Role.PS, enrols=True),
            methods.SESSION: _session_behavior(service, job),
            methods.EXCHANGE: _unary_behavior(service.exchange, job, _check_exchange, Role.WORKER),
            methods.WATCH: _stream_behavior(service.watch, job),
            methods.SCALE: _unary_behavior(service.scale, job, _check_role_only, Role.CLIENT),
            methods.STOP: _unary_behavior(service.stop, job, _check_stop, Role.CLIENT, Role.WORKER),
        }
        self._handlers = {method.path: _method_handler(method, behavior) for method, behavior in behaviors.items()}
        self._refuse_token = _refusing_handler(*_TOKEN_EXPECTED)
        reason = f"the job is in run {run}, and this process belongs to another run: it must end"
        self._refuse_run = _refusing_handler(grpc.StatusCode.FAILED_PRECONDITION, reason)

    def service(self, details: Any) -> Any:
        metadata = details.invocation_metadata or ()
        if not security.is_authorized(metadata, self._token):
            return self._refuse_token
        if details.method in _REPLICA_PATHS and not security.is_same_run(metadata, self._run):
            return self._refuse_run
        return self._handlers.get(details.method)


_REPLICA_PATHS = frozenset(method.path for method in methods.REPLICA_METHODS)
_TOKEN_EXPECTED = (grpc.StatusCode.UNAUTHENTICATED, "expected the token of this job in the authorization metadata")


def _method_handler(method: methods.Method, behavior: Callable[..., Any]) -> Any:
    kind = f"{'stream' if method.streams_requests else 'unary'}_{'stream' if method.streams_replies else 'unary'}"
    factory = getattr(grpc, f"{kind}_rpc_method_handler")
    return factory(
        behavior,
        request_deserializer=method.request.FromString,
        response_serializer=method.reply.SerializeToString,
    )


def _refusing_handler(code: grpc.StatusCode, message: str) -> Any:
    """Refuses a call of any method as a streaming one: grpc calls it with the headers, before it reads a message."""

    async def refuse(_: Any, context: Any) -> AsyncIterator[bytes]:
        await context.abort(code, message)
        yield b""

    return grpc.stream_stream_rpc_method_handler(refuse)


_STATUS_CODES = {SpecError: grpc.StatusCode.INVALID_ARGUMENT, AccessDenied: grpc.StatusCode.PERMISSION_DENIED}


async def _abort(context: Any, error: ElasticDLError) -> None:
    code = next((code for kind, code in _STATUS_CODES.items() if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
    await context.abort(code, str(error))


def _unary_behavior(
    behavior: Callable[[Any], Any],
    job: str,
    check: Callable[[Any, PeerIdentity], None],
    *roles: Role,
    enrols: bool = False,
) -> Callable[..., Any]:
    async def call(request: Any, context: Any) -> Any:
        try:
            if peer := security.check_role(context, job, roles, enrols=enrols):
                check(request, peer)
            return await behavior(request)
        except ElasticDLError as exc:
            await _abort(context, exc)

    return call


def _stream_behavior(behavior: Callable[[Any], AsyncIterator[Any]], job: str) -> Callable[..., Any]:
    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            security.check_role(context, job, (Role.CLIENT,))
            async for reply in behavior(request):
                yield reply
        except ElasticDLError as exc:
            await _abort(context, exc)

    return call


def _session_behavior(service: MasterService, job: str) -> Callable[..., Any]:
    async def call(messages: Any, context: Any) -> AsyncIterator[pb.MasterMessage]:
        try:
            peer = security.check_role(context, job, (Role.WORKER, Role.PS))
        except AccessDenied as exc:
            await _abort(context, exc)
        stream = ReplicaStream()
        session = asyncio.ensure_future(service.session(_check_hello(messages, peer) if peer else messages, stream))
        session.add_done_callback(lambda _: stream.close())
        try:
            async for message in stream.outgoing_messages():
                yield message
        finally:
            session.cancel()
            # The worker has disconnected or finished; the service handles that before the call ends.
            (outcome,) = await asyncio.gather(session, return_exceptions=True)
        if isinstance(outcome, ElasticDLError):
            await _abort(context, outcome)
        elif isinstance(outcome, Exception):
            _log.error("a session failed; its replica will reconnect", exc_info=outcome)

    return call


async def _check_hello(
    messages: AsyncIterator[pb.WorkerMessage], peer: PeerIdentity
) -> AsyncIterator[pb.WorkerMessage]:
    async for message in messages:
        if message.WhichOneof("message") == "hello":
            _check_name(message.hello.replica, peer)
        yield message


def _check_name(name: str, peer: PeerIdentity) -> None:
    if not peer.speaks_for(name):
        raise AccessDenied(f"expected the certificate of {name}; received {peer.uri}")


def _check_enroll(request: pb.EnrollRequest, peer: PeerIdentity) -> None:
    if not peer.can_enroll(request.replica):
        raise AccessDenied(
            f"expected the certificate of {request.replica!r}, or of its role; received {peer.uri}: "
            "a replica gets a certificate for its own name only"
        )


def _check_exchange(request: pb.ExchangeRequest, peer: PeerIdentity) -> None:
    _check_name(request.worker, peer)


def _check_stop(request: pb.StopRequest, peer: PeerIdentity) -> None:
    """Workers may report the end of the training; only clients may stop the job."""
    if peer.role is not Role.CLIENT and not request.is_training_done:
        raise AccessDenied(f"expected the certificate of a client; received {peer.uri}")


def _check_role_only(_: Any, __: PeerIdentity) -> None:
    """Checks nothing but the role, which `check_role` has checked."""
