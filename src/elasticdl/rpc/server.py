"""The gRPC server of the master, around a service object that knows no gRPC."""

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
    ("grpc.so_reuseport", 0),  # else two masters could share one port without noticing
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 20),  # of a client that keeps to its 2 s there is none
    # What a stranger can hold: a connection for as long as a handshake, or idle; so many calls on it, each refused
    # with its headers; of what it sends with them no more than one window.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.max_concurrent_streams", 100),
    ("grpc.max_metadata_size", 8 << 10),
    ("grpc.http2.bdp_probe", 0),  # windows stay as they are
    ("grpc.http2.lookahead_bytes", 64 << 10),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
)
_log = logging.getLogger(__name__)


class ReplicaStream:
    """The way back to one worker for as long as its stream lives."""

    def __init__(self) -> None:
        self._outbox: asyncio.Queue[pb.MasterMessage | None] = asyncio.Queue()

    def send(self, message: pb.MasterMessage) -> None:
        """Queue a message; never blocks. Lost if the stream breaks first: greeting sends it again."""
        self._outbox.put_nowait(message)

    def close(self) -> None:
        """End the stream after what is queued."""
        self._outbox.put_nowait(None)

    async def outgoing_messages(self) -> AsyncIterator[pb.MasterMessage]:
        while (message := await self._outbox.get()) is not None:
            yield message


class MasterService(Protocol):
    """What a master answers. A SpecError becomes INVALID_ARGUMENT at the caller."""

    async def enroll(self, request: pb.EnrollRequest) -> pb.EnrollReply: ...

    async def session(self, messages: AsyncIterator[pb.WorkerMessage], link: ReplicaStream) -> None:
        """Serve one worker until its stream ends or breaks; then this coroutine ends or is cancelled."""

    async def exchange(self, request: pb.ExchangeRequest) -> pb.ExchangeReply: ...

    def watch(self, request: pb.WatchRequest) -> AsyncIterator[pb.JobStatus]: ...

    async def scale(self, request: pb.ScaleRequest) -> pb.Accepted: ...

    async def stop(self, request: pb.StopRequest) -> pb.Accepted: ...


class MasterServer:
    """Listens from `start` to `stop`. Every call without the job's token is refused, and every role's but its own.

    Workers and ps of another run of the job are refused, too: they outlived their master, and are to end.
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
        """Bind to `port`, or to any free one if that is taken. Returns the address others connect to."""
        host = self._spec.workers.address
        for candidate in (port, 0) if port else (0,):
            server = grpc.aio.server(options=_SERVER_OPTIONS)
            job = self._identity.job if self._identity else ""
            server.add_generic_rpc_handlers((_AuthorizingHandler(self._service, self._token, self._run, job),))
            try:
                bound = self._bind(server, f"{host}:{candidate}")
            except RuntimeError as exc:
                if candidate == 0:
                    raise bind_error(host, exc) from exc
                continue
            await server.start()
            self._server = server
            return f"{host}:{bound}"
        raise AssertionError("the last candidate either binds or raises")

    def _bind(self, server: Any, where: str) -> int:
        credentials = security.server_credentials(self._identity)
        if credentials is None:
            return int(server.add_insecure_port(where))
        return int(server.add_secure_port(where, credentials))

    async def wait_for_failure(self) -> None:
        """Until it serves nobody any more although nobody has stopped it; then raises why."""
        await asyncio.shield(self._server.wait_for_termination())
        raise RuntimeError("the gRPC server has ended by itself")

    async def stop(self, grace_s: float) -> None:
        if self._server is not None:
            await self._server.stop(grace_s)


def bind_error(host: str, told: RuntimeError) -> Exception:
    """grpc does not say why it could not bind: an address of others is a wrong job, want of descriptors will pass."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        with socket.create_server((host, 0), family=found[0][0]):
            return OSError(f"{host}: {told}")  # it can be bound to by now
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
    """Finds the handler of a call, or turns the call away."""

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
        self._open = {method.path: _method_handler(method, behavior) for method, behavior in behaviors.items()}
        self._shut = _refusing_handler(*_TOKEN_EXPECTED)
        over = f"the job is in run {run}, and this process is of another: it is to end"
        self._over = _refusing_handler(grpc.StatusCode.FAILED_PRECONDITION, over)

    def service(self, details: Any) -> Any:
        received = details.invocation_metadata or ()
        if not security.is_authorized(received, self._token):
            return self._shut
        if details.method in _REPLICA_PATHS and not security.is_same_run(received, self._run):
            return self._over
        return self._open.get(details.method)


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
    """Of any method as one that streams: grpc calls it with the headers, before it reads what was sent with them."""

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
        link = ReplicaStream()
        serving = asyncio.ensure_future(service.session(_check_hello(messages, peer) if peer else messages, link))
        serving.add_done_callback(lambda _: link.close())
        try:
            async for message in link.outgoing_messages():
                yield message
        finally:
            serving.cancel()
            # The worker is gone or done; what is left is to let the service say so.
            (ended,) = await asyncio.gather(serving, return_exceptions=True)
        if isinstance(ended, ElasticDLError):
            await _abort(context, ended)
        elif isinstance(ended, Exception):
            _log.error("a session ended by an error of ours; whoever it was with comes back", exc_info=ended)

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
            "a replica gets a certificate of its own name only"
        )


def _check_exchange(request: pb.ExchangeRequest, peer: PeerIdentity) -> None:
    _check_name(request.worker, peer)


def _check_stop(request: pb.StopRequest, peer: PeerIdentity) -> None:
    """A worker may say that the training is done, not that it should end."""
    if peer.role is not Role.CLIENT and not request.is_training_done:
        raise AccessDenied(f"expected the certificate of a client; received {peer.uri}")


def _check_role_only(_: Any, __: PeerIdentity) -> None:
    """The role is enough."""
