"""One API server for all tests of this folder, a namespace for each."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from elasticdl.kube.api import ALL_NAMESPACES, Api
from elasticdl.kube.kinds import CRD, ELASTIC_JOB
from tests.integration.kube.apiserver import ADMIN, ApiServer, programs
from tests.integration.kube.elastic_job import install
from tests.integration.kube.operator_process import Operator

_numbers = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Connections that a killed server left to the client library are closed whenever they are collected."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    if programs() is None:
        pytest.skip("no etcd and kube-apiserver on this machine: set KUBEBUILDER_ASSETS")
    with ApiServer(tmp_path_factory.mktemp("apiserver")) as server:
        yield server


Connect = Callable[..., Api]


@pytest.fixture
def connect(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """`connect(user=…, port=…, namespace=…, cls=…)`: an Api as a person has it, by a kubeconfig."""
    opened: list[Api] = []

    def open_(user: str = ADMIN, port: int = 0, namespace: str = "default", cls: type[Api] = Api) -> Api:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(user, port, namespace)))
        opened.append(cls.connect(timeout_s=10.0))
        return opened[-1]

    yield open_
    for api in opened:
        api.close()


@pytest.fixture
def namespace(connect: Connect) -> str:
    """A namespace of this test's own."""
    name = f"test-{os.getpid()}-{next(_numbers)}"
    connect().create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
def api(connect: Connect, namespace: str) -> Api:
    return connect(namespace=namespace)


Start = Callable[..., Operator]


@pytest.fixture
def start(server: ApiServer, api: Api, namespace: str, tmp_path: Path) -> Iterator[Start]:
    """Start an operator; it need not lead yet."""
    install(api)
    begun: list[Operator] = []
    environ = {**os.environ, "KUBECONFIG": str(server.kubeconfig(namespace=namespace))}

    def start() -> Operator:
        begun.append(Operator(tmp_path / f"operator-{len(begun)}.log", environ, f"lease-{namespace}"))
        return begun[-1]

    yield start
    for one in begun:
        one.end(signal.SIGKILL)
    # Of all namespaces, as the operator saw them.
    for job in api.list(ELASTIC_JOB, ALL_NAMESPACES)[0] if api.get(CRD, "elasticjobs.elasticdl.org") else []:
        name, where = job["metadata"]["name"], job["metadata"]["namespace"]
        api.patch(ELASTIC_JOB, name, {"metadata": {"finalizers": None}}, where)
        api.delete(ELASTIC_JOB, name, where)
