"""The wire in front of the master: one asyncio grpc server around a service object that knows no grpc."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import grpc
import grpc.aio

from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc import methods, security
from elasticdl.spec import JobSpec

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),  # else two masters could share one port without noticing
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
)


class Link:
    """The way back to one worker for as long as its stream lives."""

    def __init__(self) -> None:
        self._outbox: asyncio.Queue[pb.MasterMessage | None] = asyncio.Queue()

    def send(self, message: pb.MasterMessage) -> None:
        """Queue a message; never blocks. Lost if the stream breaks first: greeting sends it again."""
        self._outbox.put_nowait(message)

    def close(self) -> None:
        """End the stream after what is queued."""
        self._outbox.put_nowait(None)

    async def outgoing(self) -> AsyncIterator[pb.MasterMessage]:
        while (message := await self._outbox.get()) is not None:
            yield message


class MasterService(Protocol):
    """What a master answers. A SpecError becomes INVALID_ARGUMENT at the caller."""

    async def session(self, messages: AsyncIterator[pb.WorkerMessage], link: Link) -> None:
        """Serve one worker until its stream ends or breaks; then this coroutine ends or is cancelled."""

    async def exchange(self, request: pb.ExchangeRequest) -> pb.ExchangeReply: ...

    def watch(self, request: pb.WatchRequest) -> AsyncIterator[pb.JobStatus]: ...

    async def scale(self, request: pb.ScaleRequest) -> pb.Accepted: ...

    async def stop(self, request: pb.StopRequest) -> pb.Accepted: ...


class MasterServer:
    """Listens from `start` to `stop`. Every call without the job's token is refused."""

    def __init__(self, service: MasterService, spec: JobSpec, token: str) -> None:
        self._service = service
        self._spec = spec
        self._token = token
        self._server: Any = None

    async def start(self, port: int = 0) -> str:
        """Bind to `port`, or to any free one if that is taken. Returns the address others connect to."""
        host = self._spec.workers.address
        for candidate in (port, 0) if port else (0,):
            server = grpc.aio.server(options=_OPTIONS)
            server.add_generic_rpc_handlers((_Door(self._service, self._token),))
            try:
                bound = self._bind(server, f"{host}:{candidate}")
            except RuntimeError as exc:
                if candidate == 0:
                    raise SpecError(
                        f"workers.address: expected an address of this machine to listen on, received {host!r} ({exc})"
                    ) from exc
                continue
            await server.start()
            self._server = server
            return f"{host}:{bound}"
        raise AssertionError("the last candidate either binds or raises")

    def _bind(self, server: Any, where: str) -> int:
        credentials = security.server_credentials(self._spec.security)
        if credentials is None:
            return int(server.add_insecure_port(where))
        return int(server.add_secure_port(where, credentials))

    async def stop(self, grace_s: float) -> None:
        if self._server is not None:
            await self._server.stop(grace_s)


class _Door(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Finds the handler of a call, or turns the call away."""

    def __init__(self, service: MasterService, token: str) -> None:
        self._token = token
        behaviors: dict[methods.Method, Callable[..., Any]] = {
            methods.SESSION: _session(service),
            methods.EXCHANGE: _unary(service.exchange),
            methods.WATCH: _streamed(service.watch),
            methods.SCALE: _unary(service.scale),
            methods.STOP: _unary(service.stop),
        }
        self._open = {method.path: _handler(method, behavior) for method, behavior in behaviors.items()}
        self._shut = {method.path: _handler(method, _refusal(method)) for method in behaviors}

    def service(self, details: Any) -> Any:
        allowed = security.is_authorized(details.invocation_metadata or (), self._token)
        return (self._open if allowed else self._shut).get(details.method)


def _handler(method: methods.Method, behavior: Callable[..., Any]) -> Any:
    kind = f"{'stream' if method.streams_requests else 'unary'}_{'stream' if method.streams_replies else 'unary'}"
    factory = getattr(grpc, f"{kind}_rpc_method_handler")
    return factory(
        behavior,
        request_deserializer=method.request.FromString,
        response_serializer=method.reply.SerializeToString,
    )


def _refusal(method: methods.Method) -> Callable[..., Any]:
    message = "expected the token of this job in the authorization metadata"

    async def refuse(_: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, message)

    async def refuse_stream(_: Any, context: Any) -> AsyncIterator[None]:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, message)
        yield

    return refuse_stream if method.streams_replies else refuse


async def _abort(context: Any, error: ElasticDLError) -> None:
    code = grpc.StatusCode.INVALID_ARGUMENT if isinstance(error, SpecError) else grpc.StatusCode.INTERNAL
    await context.abort(code, str(error))


def _unary(behavior: Callable[[Any], Any]) -> Callable[..., Any]:
    async def call(request: Any, context: Any) -> Any:
        try:
            return await behavior(request)
        except ElasticDLError as exc:
            await _abort(context, exc)

    return call


def _streamed(behavior: Callable[[Any], AsyncIterator[Any]]) -> Callable[..., Any]:
    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for reply in behavior(request):
                yield reply
        except ElasticDLError as exc:
            await _abort(context, exc)

    return call


def _session(service: MasterService) -> Callable[..., Any]:
    async def call(messages: Any, context: Any) -> AsyncIterator[pb.MasterMessage]:
        link = Link()
        serving = asyncio.ensure_future(service.session(messages, link))
        serving.add_done_callback(lambda _: link.close())
        try:
            async for message in link.outgoing():
                yield message
        finally:
            serving.cancel()
            # The worker is gone or done; what is left is to let the service say so.
            await asyncio.gather(serving, return_exceptions=True)

    return call
