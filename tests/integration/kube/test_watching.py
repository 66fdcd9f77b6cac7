"""`follow_changes` against a real API server that restarts, forgets versions and loses connections.

No change is lost and none is reported twice.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from elasticdl.kube.api import Api, Documents, WatchStream
from elasticdl.kube.errors import Forbidden
from elasticdl.kube.kinds import CONFIG_MAP, ResourceKind
from elasticdl.kube.watch import ObjectChange, follow_changes
from tests.integration.kube.apiserver import NOBODY, ApiServer
from tests.integration.kube.conftest import Connect
from tests.integration.kube.interrupting_proxy import InterruptingProxy

WAIT_S = 30.0


class CountingApi(Api):
    """Counts lists, and keeps the version that each watch started from."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.lists = 0
        self.versions: list[str] = []
        self.watched = threading.Semaphore(0)
        self.refused = threading.Event()

    def list(
        self, kind: ResourceKind, namespace: str = "", labels: str = "", fields: str = ""
    ) -> tuple[Documents, str]:
        self.lists += 1
        try:
            return super().list(kind, namespace, labels, fields)
        except Forbidden:
            self.refused.set()
            raise

    def watch(
        self, kind: ResourceKind, namespace: str, labels: str, version: str, timeout_s: float, fields: str = ""
    ) -> WatchStream:
        watch = super().watch(kind, namespace, labels, version, timeout_s, fields)
        self.versions.append(version)
        self.watched.release()
        return watch


class Follower:
    """The changes that `follow_changes` reports in a thread."""

    def __init__(self, api: CountingApi) -> None:
        self.api = api
        self.changes: queue.Queue[list[ObjectChange]] = queue.Queue()

    def next(self) -> list[tuple[str, str, str]]:
        """The next changes: (name, previous word, new word)."""
        return [describe_change(change) for change in self.changes.get(timeout=WAIT_S)]

    def await_watch(self) -> None:
        assert self.api.watched.acquire(timeout=WAIT_S)


def describe_change(change: ObjectChange) -> tuple[str, str, str]:
    config_map = change.after or change.before or {}
    before, after = ((document or {}).get("data", {}).get("word", "") for document in change)
    return config_map["metadata"]["name"], before, after


@contextmanager
def following(api: CountingApi, **arguments: Any) -> Iterator[Follower]:
    stopped, follower = threading.Event(), Follower(api)

    def run() -> None:
        for changes in follow_changes(api, CONFIG_MAP, "", "", stopped, **arguments):
            follower.changes.put(changes)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield follower
    finally:
        stopped.set()
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the follower did not stop"
    assert follower.changes.empty(), "more changes were reported than happened"


def write(api: Api, name: str, word: str) -> None:
    if api.get(CONFIG_MAP, name) is None:
        api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"word": word}})
    else:
        api.patch(CONFIG_MAP, name, {"data": {"word": word}})


@pytest.fixture
def counting_api(connect: Connect, namespace: str) -> CountingApi:
    api = connect(namespace=namespace, cls=CountingApi)
    assert isinstance(api, CountingApi)
    return api


def test_a_field_selector_selects_one_object(api: Api, counting_api: CountingApi) -> None:
    write(api, "a", "one")
    write(api, "b", "one")
    with following(counting_api, fields="metadata.name=b") as follower:
        assert follower.next() == [("b", "", "one")]
        follower.await_watch()
        write(api, "a", "two")
        write(api, "b", "two")
        assert follower.next() == [("b", "one", "two")]


def test_the_list_comes_first_even_if_it_is_empty_and_then_each_change(api: Api, counting_api: CountingApi) -> None:
    with following(counting_api) as follower:
        assert follower.next() == []
        write(api, "a", "one")
        assert follower.next() == [("a", "", "one")]
        write(api, "a", "two")
        assert follower.next() == [("a", "one", "two")]
        api.delete(CONFIG_MAP, "a")
        assert follower.next() == [("a", "two", "")]


def test_after_a_lost_connection_the_watch_continues_without_another_list(
    server: ApiServer, connect: Connect, api: Api, namespace: str
) -> None:
    with InterruptingProxy(server.port) as proxy:
        counting_api = connect(namespace=namespace, cls=CountingApi, port=proxy.port)
        assert isinstance(counting_api, CountingApi)
        with following(counting_api) as follower:
            assert follower.next() == []
            follower.await_watch()
            for round_ in range(3):
                write(api, "a", str(round_))
                assert follower.next() == [("a", str(round_ - 1) if round_ else "", str(round_))]
                assert proxy.interrupt() >= 1
                write(api, f"b-{round_}", "while disconnected")
                assert follower.next() == [(f"b-{round_}", "", "while disconnected")]
                follower.await_watch()
        assert counting_api.lists == 1


def test_after_a_restart_of_the_server_no_change_is_lost_or_reported_twice(
    server: ApiServer, api: Api, counting_api: CountingApi
) -> None:
    write(api, "kept", "same")
    write(api, "changed", "before")
    write(api, "removed", "here")
    with following(counting_api) as follower:
        assert len(follower.next()) == 3
        follower.await_watch()

        server.kill()
        server.start()
        write(api, "changed", "after")
        api.delete(CONFIG_MAP, "removed")
        write(api, "new", "one")

        reported: set[tuple[str, str, str]] = set()
        while len(reported) < 3:
            changes = set(follower.next())
            assert not reported & changes
            reported |= changes
    assert reported == {("changed", "before", "after"), ("removed", "here", ""), ("new", "", "one")}


class Forgetful(CountingApi):
    """Goes on from a version that the server has long forgotten, once."""

    def watch(
        self, kind: ResourceKind, namespace: str, labels: str, version: str, timeout_s: float, fields: str = ""
    ) -> WatchStream:
        return super().watch(kind, namespace, labels, "1" if not self.versions else version, timeout_s, fields)


def test_after_a_forgotten_version_a_new_list_reports_only_differences(
    server: ApiServer, connect: Connect, api: Api, namespace: str
) -> None:
    server.kill()
    server.start()  # it remembers nothing of before
    write(api, "a", "one")
    counting_api = connect(namespace=namespace, cls=Forgetful)
    assert isinstance(counting_api, CountingApi)
    with following(counting_api) as follower:
        assert follower.next() == [("a", "", "one")]
        follower.await_watch()
        follower.await_watch()
        write(api, "a", "two")
        assert follower.next() == [("a", "one", "two")]
    assert counting_api.lists == 2 and counting_api.versions[0] == "1"


def test_a_bookmark_keeps_the_version_fresh_while_nothing_of_ours_changes(api: Api, counting_api: CountingApi) -> None:
    with following(counting_api, watch_s=4) as follower:
        assert follower.next() == []
        follower.await_watch()
        # Something else happens in the cluster: our objects stay, the version grows.
        for number in range(3):
            document = {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}
            name = f"{api.namespace}-{number}"
            api.create(document | {"metadata": {"name": name, "namespace": "default"}})
        follower.await_watch()
    assert counting_api.lists == 1
    assert int(counting_api.versions[1]) >= int(counting_api.versions[0]) + 3


def test_a_missing_right_to_list_is_waited_for(
    connect: Connect, api: Api, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    counting_api = connect(NOBODY, namespace=namespace, cls=CountingApi)
    assert isinstance(counting_api, CountingApi)
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}
    version = "rbac.authorization.k8s.io/v1"
    with following(counting_api) as follower:
        assert counting_api.refused.wait(WAIT_S)
        metadata = {"name": "reader", "namespace": namespace}
        api.create({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": [rule]})
        binding: dict[str, Any] = {"apiVersion": version, "kind": "RoleBinding", "metadata": metadata}
        binding["roleRef"] = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
        binding["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": NOBODY}]
        api.create(binding)
        assert follower.next() == []
        follower.await_watch()
    assert counting_api.lists < 20
    assert "list configmaps" in caplog.text
