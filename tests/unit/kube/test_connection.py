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
    opened = ApiConnection.open(context)

    assert (opened.server, opened.context, opened.namespace) == ("https://there:1", name, namespace)


def test_an_unknown_context_is_refused_with_the_nearest_of_those_that_exist(kubeconfig: Path) -> None:
    with pytest.raises(NoCluster, match=r"no context 'twoo' in .*; did you mean 'two'\? There are: one, two"):
        ApiConnection.open("twoo")
    with pytest.raises(NoCluster, match=r"no context 'three' in the kubeconfig; there are: one, two"):
        ApiConnection.open("three")


def test_each_role_names_itself_to_the_server(kubeconfig: Path) -> None:
    assert ApiConnection.open().user_agent == f"elasticdl/{__version__}"
    assert ApiConnection.open(role="master").user_agent == f"elasticdl-master/{__version__}"


def test_without_a_kubeconfig_the_error_says_where_it_looked(kubeconfig: Path) -> None:
    kubeconfig.unlink()

    with pytest.raises(NoCluster, match=rf"looked at {kubeconfig}.*set KUBECONFIG"):
        ApiConnection.open()


@pytest.mark.parametrize("text", ["{", "- no\n- mapping\n", "", "clusters: 3\n"])
def test_a_kubeconfig_that_is_none_is_refused_and_not_a_crash(kubeconfig: Path, text: str) -> None:
    kubeconfig.write_text(text)

    with pytest.raises(NoCluster, match=r"(?s)no Kubernetes cluster to speak to: .*set KUBECONFIG"):
        ApiConnection.open()


def test_a_pod_speaks_as_its_service_account_and_notices_a_new_token(
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
    opened = ApiConnection.open()
    assert (opened.server, opened.context, opened.namespace) == ("https://10.96.0.1:443", "", "team")
    assert "first" in str(opened.configuration.auth_settings())

    (tmp_path / "token").write_text("second")
    two_minutes_later = datetime.datetime.now() + datetime.timedelta(minutes=2)

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Later:
            return cls.fromtimestamp(two_minutes_later.timestamp())

    monkeypatch.setattr(incluster_config.datetime, "datetime", Later)
    assert "second" in str(opened.configuration.auth_settings())
