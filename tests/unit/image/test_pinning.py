"""The base of an image is a digest, never only a tag."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import cast

import pytest

from elasticdl.errors import SpecError
from elasticdl.image import pinning

DIGEST = "sha256:" + "ab" * 32


def test_the_default_base_is_resolved_to_a_digest() -> None:
    tags: list[str] = []

    def fetch(tag: str) -> str:
        tags.append(tag)
        return DIGEST

    arguments = pinning.pin_base({"BASE": pinning.default_base(), "EXTRAS": "torch"}, fetch)

    assert arguments == {"BASE": f"{pinning.default_base()}@{DIGEST}", "EXTRAS": "torch"}
    assert tags == [pinning.default_base()] or pinning.default_base() in pinning.recorded_bases()


@pytest.mark.parametrize("image", ["nvidia/cuda:13", "python", "python:3.11-slim-bookworm@sha256:ab", "x@sha512:00"])
def test_another_base_without_a_digest_is_refused_with_the_fix(image: str) -> None:
    with pytest.raises(SpecError, match=r"@sha256:….*UNPINNED_BASE=yes"):
        pinning.pin_base({"BASE": image})


def test_a_base_by_digest_or_one_of_this_machine_is_taken() -> None:
    pinned = f"nvidia/cuda:13@{DIGEST}"

    assert pinning.pin_base({"BASE": pinned}) == {"BASE": pinned}
    assert pinning.pin_base({"BASE": "mine:1", "UNPINNED_BASE": "yes"}) == {"BASE": "mine:1"}
    with pytest.raises(SpecError):
        pinning.pin_base({"BASE": "mine:1", "UNPINNED_BASE": "no"})


def test_recorded_bases_have_digests() -> None:
    assert pinning.recorded_bases(f"# a\n\npython:3.11@{DIGEST}\n") == {"python:3.11": f"python:3.11@{DIGEST}"}
    with pytest.raises(SpecError, match="make base"):
        pinning.recorded_bases("python:3.11\n")
    assert all(pinning.is_pinned(image) for image in pinning.recorded_bases().values())


class Registry(BaseHTTPRequestHandler):
    """Requires a token, as Docker's does."""

    digest = DIGEST

    def do_GET(self) -> None:
        assert "scope=repository%3Alibrary%2Fpython%3Apull" in self.path
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"token": "good"}')

    def do_HEAD(self) -> None:
        if self.headers["Authorization"] != "Bearer good":
            port = cast(HTTPServer, self.server).server_port
            parameters = f'realm="http://127.0.0.1:{port}/token",service="r",scope="repository:library/python:pull"'
            self.send_response(401)
            self.send_header("WWW-Authenticate", f"Bearer {parameters}")
        elif self.path == "/v2/library/python/manifests/3.11":
            self.send_response(200)
            self.send_header("Docker-Content-Digest", self.digest)
        else:
            self.send_response(404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quietly."""


@pytest.fixture
def registry() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_registry_that_requires_a_token_gets_one(registry: str) -> None:
    assert pinning.fetch_digest("python:3.11", registry, timeout_s=30) == DIGEST


def test_an_unknown_tag_or_an_unreachable_registry_is_reported_with_the_fix(
    registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SpecError, match=r"BASE=python:2@sha256:…"):
        pinning.fetch_digest("python:2", registry, timeout_s=30)
    with pytest.raises(SpecError, match="cannot be read from"):
        pinning.fetch_digest("python:3.11", "http://127.0.0.1:9", timeout_s=5)
    monkeypatch.setattr(Registry, "digest", "latest")
    with pytest.raises(SpecError, match="returns no digest"):
        pinning.fetch_digest("python:3.11", registry, timeout_s=30)
