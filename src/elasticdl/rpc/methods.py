"""The methods of the Master service, written by hand: generated stubs would pin a version of grpc.

The messages are generated from `elasticdl.proto`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from elasticdl.rpc import elasticdl_pb2 as pb

SERVICE_NAME = "elasticdl.Master"


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the service: its messages, and whether they are streamed."""

    name: str
    request: type[Message]
    reply: type[Message]
    streams_requests: bool = False
    streams_replies: bool = False

    @property
    def path(self) -> str:
        return f"/{SERVICE_NAME}/{self.name}"

    def bind(self, channel: Any) -> Any:
        """The callable of this method on a grpc channel."""
        factory = getattr(channel, f"{_arity(self.streams_requests)}_{_arity(self.streams_replies)}")
        return factory(
            self.path,
            request_serializer=self.request.SerializeToString,
            response_deserializer=self.reply.FromString,
        )


def _arity(streams: bool) -> str:
    return "stream" if streams else "unary"


SESSION = Method("Session", pb.WorkerMessage, pb.MasterMessage, streams_requests=True, streams_replies=True)
ENROLL = Method("Enroll", pb.EnrollRequest, pb.EnrollReply)
EXCHANGE = Method("Exchange", pb.ExchangeRequest, pb.ExchangeReply)
WATCH = Method("Watch", pb.WatchRequest, pb.JobStatus, streams_replies=True)
SCALE = Method("Scale", pb.ScaleRequest, pb.Accepted)
STOP = Method("Stop", pb.StopRequest, pb.Accepted)

REPLICA_METHODS = (ENROLL, SESSION, EXCHANGE)  # called by workers and ps; the others by users
METHODS = (ENROLL, SESSION, EXCHANGE, WATCH, SCALE, STOP)
