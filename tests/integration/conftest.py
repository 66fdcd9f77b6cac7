from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticdl.storage.paths import StorePath, parse_path
from tests.integration.job import Jobs
from tests.s3 import BUCKET, Proxy, pass_all, serve_s3


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    """Jobs in a home of their own; none of their processes outlives the test."""
    started = Jobs(tmp_path)
    yield started
    started.end()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The bits every history must end with: those of one worker that nobody disturbs."""
    started = Jobs(tmp_path_factory.mktemp("undisturbed"))
    try:
        return started.train("undisturbed", 1).digest()
    finally:
        started.end()


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Checkpoints of a few steps."""
    started = Jobs(tmp_path_factory.mktemp("trained"))
    job = started.train("trained", 1, "--max_steps", "4")
    job.digest()
    yield job.directory.root / "checkpoints"
    started.end()


@pytest.fixture(scope="session")
def s3_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """An S3 server for the session; this process and those it starts are led to the proxy before it."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    with (
        serve_s3(tmp_path_factory.mktemp("s3") / "server.log") as server,
        Proxy(server) as proxy,
        pytest.MonkeyPatch.context() as environ,
    ):
        for name, value in proxy.environ.items():
            environ.setenv(name, value)
        yield proxy


@pytest.fixture
def s3(s3_proxy: Proxy) -> Iterator[Proxy]:
    """The proxy of the module, which passes all requests until the test sets another rule."""
    s3_proxy.rule = pass_all
    yield s3_proxy
    s3_proxy.rule = pass_all


@pytest.fixture
def bucket(s3: Proxy, request: pytest.FixtureRequest) -> StorePath:
    """A prefix of this test's own."""
    path = parse_path(f"s3://{BUCKET}/{request.node.name.replace('[', '-').replace(']', '')}", retry_s=20.0)
    assert isinstance(path, StorePath)
    return path
