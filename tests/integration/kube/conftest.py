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
from tests.integration.kube.operator_process import OperatorProcess

_numbers = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignores warnings of connections that the client library closes late after a server was killed."""
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
    """`connect(user=…, port=…, namespace=…, cls=…)`: an Api by a kubeconfig."""
    apis: list[Api] = []

    def open_(user: str = ADMIN, port: int = 0, namespace: str = "default", cls: type[Api] = Api) -> Api:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(user, port, namespace)))
        apis.append(cls.connect(timeout_s=10.0))
        return apis[-1]

    yield open_
    for api in apis:
        api.close()


@pytest.fixture
def namespace(connect: Connect) -> str:
    """A new namespace for this test."""
    name = f"test-{os.getpid()}-{next(_numbers)}"
    connect().create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
def api(connect: Connect, namespace: str) -> Api:
    return connect(namespace=namespace)


StartOperator = Callable[..., OperatorProcess]


@pytest.fixture
def start(server: ApiServer, api: Api, namespace: str, tmp_path: Path) -> Iterator[StartOperator]:
    """Starts an operator, which waits until it is the leader."""
    install(api)
    operators: list[OperatorProcess] = []
    environ = {**os.environ, "KUBECONFIG": str(server.kubeconfig(namespace=namespace))}

    def start() -> OperatorProcess:
        operators.append(OperatorProcess(tmp_path / f"operator-{len(operators)}.log", environ, f"lease-{namespace}"))
        return operators[-1]

    yield start
    for operator in operators:
        operator.end(signal.SIGKILL)
    # The operators have added finalizers in all namespaces.
    for job in api.list(ELASTIC_JOB, ALL_NAMESPACES)[0] if api.get(CRD, "elasticjobs.elasticdl.org") else []:
        name, job_namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        api.patch(ELASTIC_JOB, name, {"metadata": {"finalizers": None}}, job_namespace)
        api.delete(ELASTIC_JOB, name, job_namespace)
