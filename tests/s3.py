"""An S3 server (moto, in its own process), and a proxy in front of it that can be made to fail."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.waiting import until

BUCKET = "elasticdl-tests"
ANSWERS = {
    403: ("AccessDenied", "Access Denied"),
    500: ("InternalError", "We encountered an internal error. Please try again."),
    503: ("SlowDown", "Please reduce your request rate."),
}
Rule = Callable[[str, str], int]  # (method, path) -> the status to fail with; 0 lets the request pass


def pass_all(method: str, path: str) -> int:
    return 0


class S3Server:
    """A running server: its address, and the environment variables with which s3fs uses it."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        return environ_of(self.endpoint)

    def admit(self, user: str, policy: Mapping[str, Any]) -> dict[str, str]:
        """Creates a user with this policy. Returns the user's credentials as environment variables. See `lock`."""
        import botocore.session

        anybody = {"aws_access_key_id": "anybody", "aws_secret_access_key": "anything"}
        session = botocore.session.Session()
        iam = session.create_client("iam", region_name="us-east-1", endpoint_url=self.endpoint, **anybody)
        iam.create_user(UserName=user)
        iam.put_user_policy(UserName=user, PolicyName="store", PolicyDocument=json.dumps(policy))
        key = iam.create_access_key(UserName=user)["AccessKey"]
        return {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}

    def lock(self) -> None:
        """From now on every request must be signed by an admitted user, and the user's policy is applied."""
        assert self.request("POST", "/moto-api/reset-auth", b"0")[0] == 200

    def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Sends one unsigned request, which moto accepts."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
        try:
            connection.request(method, path, body, {"Host": "s3.amazonaws.com"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def environ_of(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "test-key",
        "AWS_SECRET_ACCESS_KEY": "test-secret-4711",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def serve_s3(log: Path, host: str = "127.0.0.1") -> Iterator[S3Server]:
    """Runs a server with one empty bucket at an address of this machine until the block ends."""
    with socket.create_server((host, 0)) as taken:
        port = int(taken.getsockname()[1])
    argv = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", host, "-p", str(port)]
    with log.open("wb") as output, subprocess.Popen(argv, stdout=output, stderr=output) as process:
        try:
            server = S3Server(host, port)
            until("a reply of the S3 server", lambda: _has_replied(server, process), tell=log.read_text)
            assert server.request("PUT", f"/{BUCKET}")[0] == 200
            yield server
        finally:
            process.kill()


def _has_replied(server: S3Server, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "the S3 server ended"
    try:
        return server.request("GET", "/")[0] == 200
    except OSError:
        return False


class Proxy:
    """Passes requests on to a server, except those that `rule` fails, and records all of them in `requests`."""

    def __init__(self, server: S3Server) -> None:
        self.rule: Rule = pass_all
        self.requests: list[tuple[str, str]] = []
        proxy = self

        class Pages(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                proxy.requests.append((self.command, self.path))
                status = proxy.rule(self.command, self.path)
                if status:
                    code, message = ANSWERS[status]
                    error = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
                    self._answer(status, [("Content-Type", "application/xml")], error.encode())
                    return
                connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
                try:
                    connection.request(self.command, self.path, body, dict(self.headers))
                    answer = connection.getresponse()
                    self._answer(answer.status, answer.getheaders(), answer.read())
                finally:
                    connection.close()

            def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
                self.send_response_only(status)
                has_length = False
                for name, value in headers:
                    if name.lower() in ("transfer-encoding", "connection"):
                        continue
                    has_length |= name.lower() == "content-length"
                    self.send_header(name, value)
                if not has_length:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    with suppress(ConnectionError):  # the client closed the connection after the range it needed
                        self.wfile.write(content)

            def do_GET(self) -> None:
                self._pass()

            def do_HEAD(self) -> None:
                self._pass()

            def do_PUT(self) -> None:
                self._pass()

            def do_POST(self) -> None:
                self._pass()

            def do_DELETE(self) -> None:
                self._pass()

            def log_message(self, format: str, *args: Any) -> None:
                """Logs nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def environ(self) -> dict[str, str]:
        return environ_of(f"http://127.0.0.1:{self._server.server_address[1]}")

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
