from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from elasticdl.errors import AccessDenied, ElasticDLError, MasterUnreachable, SpecError
from elasticdl.rpc import channel, methods
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec.directory import JobDirectory


class FailedCall:
    """An error of a grpc call."""

    def __init__(self, code: grpc.StatusCode, details: str = "why") -> None:
        self._code = code
        self._details = details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, AccessDenied),
        (grpc.StatusCode.INVALID_ARGUMENT, SpecError),
        (grpc.StatusCode.UNAVAILABLE, MasterUnreachable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, MasterUnreachable),
    ],
)
def test_an_error_of_grpc_is_converted(code: grpc.StatusCode, expected: type[ElasticDLError]) -> None:
    error = channel.error_from_grpc(FailedCall(code), "127.0.0.1:1")

    assert type(error) is expected
    assert "why" in str(error)


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ("Ssl handshake failed (TSI_PROTOCOL_FAILURE): CERTIFICATE_VERIFY_FAILED", AccessDenied),
        ("Ssl handshake failed (TSI_PROTOCOL_FAILURE): WRONG_VERSION_NUMBER", AccessDenied),
        ("Handshake read failed (recvmsg:Connection reset by peer (104))", MasterUnreachable),
        ("Handshake read failed (Socket closed)", MasterUnreachable),
        ("failed to connect to all addresses; last error: UNKNOWN: tcp handshaker shutdown", MasterUnreachable),
    ],
)
def test_a_connection_lost_within_the_handshake_is_no_matter_of_certificates(
    details: str, expected: type[ElasticDLError]
) -> None:
    error = channel.error_from_grpc(FailedCall(grpc.StatusCode.UNAVAILABLE, details), "127.0.0.1:1")

    assert type(error) is expected


def test_a_master_that_never_started_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(MasterUnreachable, match=r"master\.json does not exist"):
        channel.master_address(JobDirectory(tmp_path))


def test_the_method_table_matches_the_proto() -> None:
    declared = pb.DESCRIPTOR.services_by_name["Master"].methods

    assert {
        (method.name, method.request.DESCRIPTOR.name, method.reply.DESCRIPTOR.name) for method in methods.METHODS
    } == {(method.name, method.input_type.name, method.output_type.name) for method in declared}
