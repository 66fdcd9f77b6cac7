from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from elasticdl import __version__
from elasticdl.kube import connection
from elasticdl.kube.connection import ApiConnection
from elasticdl.kube.errors import NoCluster

CONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "one",
    "clusters": [{"name": "c", "cluster": {"server": "https://there:1"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [
        {"name": "one", "context": {"cluster": "c", "user": "u"}},
        {"name": "two", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
    ],
}


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config"
    path.write_text(json.dumps(CONFIG))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return path


@pytest.mark.parametrize(("context", "name", "namespace"), [("", "one", "default"), ("two", "two", "team")])
def test_a_context_gives_server_and_namespace(kubeconfig: Path, context: str, name: str, namespace: str) -> None:
    api_connection = ApiConnection.open(context)

    assert (api_connection.server, api_connection.context, api_connection.namespace) == (
        "https://there:1",
        name,
        namespace,
    )


def test_an_unknown_context_is_refused_with_the_nearest_existing_one(kubeconfig: Path) -> None:
    with pytest.raises(NoCluster, match=r"no context 'twoo' in .*; did you mean 'two'\? There are: one, two"):
        ApiConnection.open("twoo")
    with pytest.raises(NoCluster, match=r"no context 'three' in the kubeconfig; there are: one, two"):
        ApiConnection.open("three")


def test_the_user_agent_names_the_role(kubeconfig: Path) -> None:
    assert ApiConnection.open().user_agent == f"elasticdl/{__version__}"
    assert ApiConnection.open(role="master").user_agent == f"elasticdl-master/{__version__}"


def test_without_a_kubeconfig_the_error_names_the_path(kubeconfig: Path) -> None:
    kubeconfig.unlink()

    with pytest.raises(NoCluster, match=rf"kubeconfig {kubeconfig}.*set KUBECONFIG"):
        ApiConnection.open()


@pytest.mark.parametrize("text", ["{", "- no\n- mapping\n", "", "clusters: 3\n"])
def test_a_malformed_kubeconfig_is_an_error_and_not_a_crash(kubeconfig: Path, text: str) -> None:
    kubeconfig.write_text(text)

    with pytest.raises(NoCluster, match=r"(?s)no Kubernetes cluster to connect to: .*set KUBECONFIG"):
        ApiConnection.open()


def test_a_pod_connects_as_its_service_account_and_reads_a_new_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes.config import incluster_config

    for name, content in (("token", "first"), ("ca.crt", "authority"), ("namespace", "team\n")):
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(connection, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    api_connection = ApiConnection.open()
    assert (api_connection.server, api_connection.context, api_connection.namespace) == (
        "https://10.96.0.1:443",
        "",
        "team",
    )
    assert "first" in str(api_connection.configuration.auth_settings())

    (tmp_path / "token").write_text("second")
    two_minutes_later = datetime.datetime.now() + datetime.timedelta(minutes=2)

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Later:
            return cls.fromtimestamp(two_minutes_later.timestamp())

    monkeypatch.setattr(incluster_config.datetime, "datetime", Later)
    assert "second" in str(api_connection.configuration.auth_settings())
