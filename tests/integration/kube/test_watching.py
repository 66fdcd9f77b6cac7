"""`follow` against a real API server that goes away, forgets, and is cut off: nothing is lost, nothing told twice."""

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
from tests.integration.kube.cutting import Cutter

WAIT_S = 30.0


class Counted(Api):
    """Counts lists, and keeps the version each watch began with."""

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
    def __init__(self, api: Counted) -> None:
        self.api = api
        self.heard: queue.Queue[list[ObjectChange]] = queue.Queue()

    def next(self) -> list[tuple[str, str, str]]:
        """The next changes: (name, what it was, what it is)."""
        return [described(change) for change in self.heard.get(timeout=WAIT_S)]

    def await_watch(self) -> None:
        assert self.api.watched.acquire(timeout=WAIT_S)


def described(change: ObjectChange) -> tuple[str, str, str]:
    one = change.after or change.before or {}
    words = [(side or {}).get("data", {}).get("word", "") for side in change]
    return one["metadata"]["name"], words[0], words[1]


@contextmanager
def following(api: Counted, **arguments: Any) -> Iterator[Follower]:
    stopped, follower = threading.Event(), Follower(api)

    def run() -> None:
        for changes in follow_changes(api, CONFIG_MAP, "", "", stopped, **arguments):
            follower.heard.put(changes)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield follower
    finally:
        stopped.set()
        thread.join(WAIT_S)
        assert not thread.is_alive(), "it did not stop"
    assert follower.heard.empty(), "more was told than happened"


def write(api: Api, name: str, word: str) -> None:
    if api.get(CONFIG_MAP, name) is None:
        api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"word": word}})
    else:
        api.patch(CONFIG_MAP, name, {"data": {"word": word}})


@pytest.fixture
def counted(connect: Connect, namespace: str) -> Counted:
    api = connect(namespace=namespace, cls=Counted)
    assert isinstance(api, Counted)
    return api


def test_fields_choose_one_object_whatever_its_labels(api: Api, counted: Counted) -> None:
    write(api, "a", "one")
    write(api, "b", "one")
    with following(counted, fields="metadata.name=b") as follower:
        assert follower.next() == [("b", "", "one")]
        follower.await_watch()
        write(api, "a", "two")
        write(api, "b", "two")
        assert follower.next() == [("b", "one", "two")]


def test_the_list_comes_first_even_if_it_is_empty_then_each_change(api: Api, counted: Counted) -> None:
    with following(counted) as follower:
        assert follower.next() == []
        write(api, "a", "one")
        assert follower.next() == [("a", "", "one")]
        write(api, "a", "two")
        assert follower.next() == [("a", "one", "two")]
        api.delete(CONFIG_MAP, "a")
        assert follower.next() == [("a", "two", "")]


def test_after_a_cut_connection_it_goes_on_without_another_list(
    server: ApiServer, connect: Connect, api: Api, namespace: str
) -> None:
    with Cutter(server.port) as cutter:
        counted = connect(namespace=namespace, cls=Counted, port=cutter.port)
        assert isinstance(counted, Counted)
        with following(counted) as follower:
            assert follower.next() == []
            follower.await_watch()
            for round_ in range(3):
                write(api, "a", str(round_))
                assert follower.next() == [("a", str(round_ - 1) if round_ else "", str(round_))]
                assert cutter.cut() >= 1
                write(api, f"b-{round_}", "while it was away")
                assert follower.next() == [(f"b-{round_}", "", "while it was away")]
                follower.await_watch()
        assert counted.lists == 1


def test_after_a_restart_of_the_server_nothing_is_lost_and_nothing_told_twice(
    server: ApiServer, api: Api, counted: Counted
) -> None:
    write(api, "kept", "same")
    write(api, "changed", "before")
    write(api, "removed", "here")
    with following(counted) as follower:
        assert len(follower.next()) == 3
        follower.await_watch()

        server.kill()
        server.start()
        write(api, "changed", "after")
        api.delete(CONFIG_MAP, "removed")
        write(api, "new", "one")

        heard: set[tuple[str, str, str]] = set()
        while len(heard) < 3:
            some = follower.next()
            assert not heard & set(some)
            heard |= set(some)
    assert heard == {("changed", "before", "after"), ("removed", "here", ""), ("new", "", "one")}


class Forgetful(Counted):
    """Goes on from a version that the server has long forgotten, once."""

    def watch(
        self, kind: ResourceKind, namespace: str, labels: str, version: str, timeout_s: float, fields: str = ""
    ) -> WatchStream:
        return super().watch(kind, namespace, labels, "1" if not self.versions else version, timeout_s, fields)


def test_a_forgotten_version_leads_to_a_new_list_that_tells_only_differences(
    server: ApiServer, connect: Connect, api: Api, namespace: str
) -> None:
    server.kill()
    server.start()  # it remembers nothing of before
    write(api, "a", "one")
    counted = connect(namespace=namespace, cls=Forgetful)
    assert isinstance(counted, Counted)
    with following(counted) as follower:
        assert follower.next() == [("a", "", "one")]
        follower.await_watch()
        follower.await_watch()
        write(api, "a", "two")
        assert follower.next() == [("a", "one", "two")]
    assert counted.lists == 2 and counted.versions[0] == "1"


def test_a_bookmark_keeps_the_version_fresh_while_nothing_of_ours_changes(api: Api, counted: Counted) -> None:
    with following(counted, watch_s=4) as follower:
        assert follower.next() == []
        follower.await_watch()
        # Something else happens in the cluster: our objects stay, the version grows.
        for number in range(3):
            document = {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}
            name = f"{api.namespace}-{number}"
            api.create(document | {"metadata": {"name": name, "namespace": "default"}})
        follower.await_watch()
    assert counted.lists == 1
    assert int(counted.versions[1]) >= int(counted.versions[0]) + 3


def test_who_may_not_list_waits_for_the_right(
    connect: Connect, api: Api, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    counted = connect(NOBODY, namespace=namespace, cls=Counted)
    assert isinstance(counted, Counted)
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}
    version = "rbac.authorization.k8s.io/v1"
    with following(counted) as follower:
        assert counted.refused.wait(WAIT_S)
        metadata = {"name": "reader", "namespace": namespace}
        api.create({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": [rule]})
        binding: dict[str, Any] = {"apiVersion": version, "kind": "RoleBinding", "metadata": metadata}
        binding["roleRef"] = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
        binding["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": NOBODY}]
        api.create(binding)
        assert follower.next() == []
        follower.await_watch()
    assert counted.lists < 20
    assert "list configmaps" in caplog.text
