"""Attacks of unauthenticated clients on the ports of a running job, and their cost: the table of docs/security.md.

Each attack is made on a real process. While it lasts the job trains on and its owner is answered; afterwards threads,
descriptors and memory are those of before, but for a bound.
"""

from __future__ import annotations

import random
import resource
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import grpc
import psutil
import pytest

from elasticdl.master.runtime.metrics import PrometheusMetrics
from elasticdl.rpc import channel as channels
from elasticdl.rpc import methods
from elasticdl.spec.directory import read_json
from tests import native
from tests.integration.job import PATIENCE_S, Job, Jobs
from tests.waiting import until

CONNECTIONS = 1000
MOST_BYTES = 96 << 20  # of memory that all strangers together make a process take
MOST_THREADS = 4
LARGE = 63 << 20  # what a call may carry: less than the limit of gRPC, so that only the token is in its way

LONG = ("--num_epochs=1000",)

Attack = Callable[[ExitStack, str, int], None]


@pytest.fixture(autouse=True)
def _descriptors() -> Iterator[None]:
    """Strangers need a descriptor each. The processes of the job inherit the limit of before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _allow_connections() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * CONNECTIONS), hard))


@dataclass(frozen=True)
class Cost:
    memory: int
    threads: int
    descriptors: int

    @classmethod
    def of(cls, pid: int) -> Cost:
        process = psutil.Process(pid)
        return cls(process.memory_info().rss, process.num_threads(), process.num_fds())


@dataclass(frozen=True)
class Port:
    """Where one process of a job listens."""

    job: Job
    pid: int
    host: str
    number: int

    @classmethod
    def of(cls, job: Job, name: str) -> Port:
        announced = read_json(job.directory.master)
        assert announced is not None
        living = job.living()
        if name == "master":
            return cls._at(job, living["master"], announced["address"])
        if name == "metrics":
            until("metrics are served", lambda: (read_json(job.directory.master) or {}).get("metrics_port"), PATIENCE_S)
            number = (read_json(job.directory.master) or {})["metrics_port"]
            return cls(job, living["master"], "127.0.0.1", number)
        if name == "ps":
            status = job.status()
            assert status is not None
            return cls._at(job, living["ps-0"], status.ps[0].address.removeprefix("tcp://"))
        (number,) = {
            c.laddr.port
            for c in psutil.Process(living["worker-0"]).net_connections("inet")
            if c.status == psutil.CONN_LISTEN
        }
        return cls(job, living["worker-0"], "127.0.0.1", number)

    @classmethod
    def _at(cls, job: Job, pid: int, address: str) -> Port:
        host, _, number = address.rpartition(":")
        return cls(job, pid, host, int(number))


def say_nothing(stack: ExitStack, host: str, port: int) -> None:
    """A thousand connections on which nothing is sent."""
    for _ in range(CONNECTIONS):
        _connect(stack, host, port)


def say_little(stack: ExitStack, host: str, port: int) -> None:
    """A thousand connections with a byte now and then, as of somebody who is about to say something."""
    strangers = [stranger for _ in range(CONNECTIONS) if (stranger := _connect(stack, host, port))]
    for byte in b"PRI * HTTP/2.0\r":
        for stranger in strangers:
            with suppress(OSError):
                stranger.send(bytes([byte]))


def say_nonsense(stack: ExitStack, host: str, port: int) -> None:
    """Random bytes, from many at a time."""
    source = random.Random(7)
    for _ in range(100):
        if stranger := _connect(stack, host, port):
            with suppress(OSError):
                stranger.settimeout(0.2)
                stranger.sendall(source.randbytes(64 << 10))


def say_much(stack: ExitStack, host: str, port: int) -> None:
    """Twenty times 64 MiB, as quickly as they are taken."""
    threads = [threading.Thread(target=_pour, args=(stack, host, port)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _pour(stack: ExitStack, host: str, port: int) -> None:
    if stranger := _connect(stack, host, port):
        with suppress(OSError):
            stranger.settimeout(2.0)
            stranger.sendall(b"GET / HTTP/1.1\r\n" + b"x" * (64 << 20))


def _connect(stack: ExitStack, host: str, port: int) -> socket.socket | None:
    """None where it is not even accepted in time: that is one stranger less."""
    try:
        return stack.enter_context(socket.create_connection((host, port), timeout=2.0))
    except OSError:
        return None


@contextmanager
def measured(port: Port, load: str) -> Iterator[None]:
    """The process needs no more memory and threads during the block, and the job continues."""
    before = Cost.of(port.pid)
    steps = port.job.status()
    assert steps is not None
    yield
    port.job.wait(lambda status: status.step > steps.step, "the job goes on")
    during = Cost.of(port.pid)
    print(load, before, during, sep="\n  ")
    assert during.memory - before.memory < MOST_BYTES, (load, before, during)
    assert during.threads - before.threads <= MOST_THREADS, (load, before, during)


def assert_recovered(port: Port, before: Cost) -> None:
    until(
        "descriptors are given back",
        lambda: Cost.of(port.pid).descriptors <= before.descriptors + 8,
        PATIENCE_S,
        tell=lambda: (before, Cost.of(port.pid)),
    )


ATTACKS: tuple[Attack, ...] = (say_nothing, say_little, say_nonsense, say_much)


@pytest.mark.timeout(900)  # sixteen attacks
@pytest.mark.parametrize(
    "options", [pytest.param((), id="plain", marks=pytest.mark.slow), pytest.param(("--tls",), id="tls")]
)
def test_strangers_cost_a_bounded_amount_of_memory_threads_and_descriptors(
    jobs: Jobs, options: tuple[str, ...]
) -> None:
    native.require()
    job = jobs.train("strangers", 1, "--num_ps_pods=1", *options, *LONG, slow=True, pause_s=0.2)
    job.wait_members(1, step=1)
    processes = job.living()
    _allow_connections()

    for name in ("master", "metrics", "worker", "ps"):
        port = Port.of(job, name)
        before = Cost.of(port.pid)
        for attack in ATTACKS:
            with ExitStack() as strangers, measured(port, f"{name}: {attack.__doc__}"):
                attack(strangers, port.host, port.number)
            assert_recovered(port, before)

    assert job.living() == processes


def test_without_the_token_a_call_is_refused_before_its_payload_is_read(jobs: Jobs) -> None:
    job = jobs.train("large", 1, *LONG, slow=True, pause_s=0.2)
    job.wait_members(1, step=1)
    port = Port.of(job, "master")
    channel: Any = grpc.insecure_channel(f"{port.host}:{port.number}", options=channels.CHANNEL_OPTIONS)

    with closing(channel), measured(port, "large calls without the token"):
        call = channel.unary_unary(methods.EXCHANGE.path)
        large = bytes(LARGE)
        # All at once: none is answered before all are sent.
        under_way = [
            call.future(large, timeout=PATIENCE_S, metadata=(("authorization", "Bearer guess"),)) for _ in range(8)
        ]
        codes = {answer.exception().code() for answer in under_way}

    assert codes == {grpc.StatusCode.UNAUTHENTICATED}


def test_in_a_job_with_tls_a_client_without_certificate_reaches_no_call(jobs: Jobs) -> None:
    job = jobs.train("encrypted", 1, "--tls", *LONG, slow=True, pause_s=0.2)
    job.wait_members(1, step=1)
    port = Port.of(job, "master")
    trusting = grpc.ssl_channel_credentials(job.directory.authority.read_bytes())
    named = (("grpc.ssl_target_name_override", "master.encrypted.elasticdl"),)
    token = (("authorization", f"Bearer {job.directory.load_token()}"),)

    channel: Any = grpc.secure_channel(f"{port.host}:{port.number}", trusting, options=named)
    with closing(channel):
        answer = channel.unary_unary(methods.STOP.path).future(b"", timeout=5, metadata=token)

        assert answer.exception().code() is grpc.StatusCode.UNAVAILABLE  # not even with the token
    status = job.status()
    assert status is not None
    assert status.phase == "running"


def test_a_master_that_runs_out_of_descriptors_survives_and_responds_again_afterwards(jobs: Jobs) -> None:
    job = jobs.train("exhausted", 1, *LONG, slow=True, pause_s=0.2)
    job.wait_members(1, step=1)
    port = Port.of(job, "master")
    metrics = Port.of(job, "metrics")
    before = Cost.of(port.pid)
    resource.prlimit(port.pid, resource.RLIMIT_NOFILE, (before.descriptors + 20, before.descriptors + 20))
    step = job.wait(lambda status: True, "the step").step

    with ExitStack() as strangers:
        for _ in range(100):
            _connect(strangers, port.host, port.number)
            _connect(strangers, metrics.host, metrics.number)
        until("descriptors have run out", lambda: Cost.of(port.pid).descriptors >= before.descriptors + 18, PATIENCE_S)

    job.wait(lambda status: status.step > step, "the job goes on, and its owner is answered")
    assert job.living()["master"] == port.pid


def test_metrics_with_a_token_are_only_served_with_that_token() -> None:
    server = PrometheusMetrics("job").start_server("127.0.0.1", 0, "secret")
    url = f"http://127.0.0.1:{server.port}/metrics"

    with closing(server):
        for headers in ({}, {"Authorization": "Bearer guessed"}, {"Authorization": "Bearer s\u00e9cret"}):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=PATIENCE_S)
        shown = urllib.request.Request(url, headers={"Authorization": "Bearer secret"})
        with urllib.request.urlopen(shown, timeout=PATIENCE_S) as page:
            assert b"elasticdl_step" in page.read()
