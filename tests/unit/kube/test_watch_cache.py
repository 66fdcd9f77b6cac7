"""Whichever events are missed or repeated, the cache ends equal to the server and reports each change once."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.kube.watch import ObjectChange, WatchCache

Document = dict[str, Any]


class Server:
    """Objects with versions, and a log from which watches are served until it is compacted."""

    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[str, Document] = {}
        self.log: list[tuple[int, str, Document]] = []
        self.oldest = 1

    def put(self, name: str) -> None:
        self.version += 1
        existing = self.objects.get(name)
        uid = existing["metadata"]["uid"] if existing else f"uid-{self.version}"
        metadata = {"name": name, "namespace": "n", "uid": uid, "resourceVersion": str(self.version)}
        self.objects[name] = {"metadata": metadata}
        self.log.append((self.version, "MODIFIED" if existing else "ADDED", self.objects[name]))

    def delete(self, name: str) -> None:
        if (deleted := self.objects.pop(name, None)) is not None:
            self.version += 1
            last = {"metadata": deleted["metadata"] | {"resourceVersion": str(self.version)}}
            self.log.append((self.version, "DELETED", last))

    def since(self, version: int) -> list[tuple[int, str, Document]]:
        return [entry for entry in self.log if entry[0] > version]


class Client:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.cache = WatchCache()
        self.changes: list[ObjectChange] = []

    def list(self) -> None:
        items = [dict(item) for item in self.server.objects.values()]
        self.changes += self.cache.relist(items, str(self.server.version))

    def watch(self, max_events: int, *, bookmark: bool) -> None:
        """Reads at most `max_events`, then loses the connection; lists if the version is too old for the server."""
        if not self.cache.version or int(self.cache.version) < self.server.oldest:
            self.list()
            return
        events = self.server.since(int(self.cache.version))
        for _, type_, item in events[:max_events]:
            self.changes += self.cache.apply_event(type_, item)
        if bookmark and max_events >= len(events):
            bookmark_object = {"kind": "Pod", "metadata": {"resourceVersion": str(self.server.version)}}
            assert self.cache.apply_event("BOOKMARK", bookmark_object) == []


names = st.sampled_from(["a", "b", "c"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), names),
        st.tuples(st.just("delete"), names),
        st.tuples(st.just("watch"), st.integers(0, 4), st.booleans()),
        st.tuples(st.just("list")),
        st.tuples(st.just("compact")),
    ),
    max_size=60,
)


@given(steps)
def test_any_history_ends_equal_to_the_server_and_reports_every_change_once(
    history: list[tuple[Any, ...]],
) -> None:
    server = Server()
    client = Client(server)
    for name, *arguments in history:
        match name:
            case "put" | "delete":
                getattr(server, name)(*arguments)
            case "watch":
                client.watch(arguments[0], bookmark=arguments[1])
            case "list":
                client.list()
            case "compact":
                server.oldest = server.version

    client.watch(10_000, bookmark=True)

    assert {item["metadata"]["name"]: item for item in client.cache.objects.values()} == server.objects
    assert_chained(client.changes, server.objects)


def assert_chained(changes: list[ObjectChange], objects: dict[str, Document]) -> None:
    """Applies the changes: each must fit the state that those before it left, and the last state must be `objects`."""
    state: dict[str, Document] = {}
    for before, after in changes:
        changed = after or before
        assert changed is not None
        name = changed["metadata"]["name"]
        if before is None:
            assert name not in state, "reported as new, but exists"
        else:
            assert before["metadata"]["uid"] == state[name]["metadata"]["uid"]
        if before is not None and after is not None:
            assert before == state[name] and before != after, "a change that changed nothing"
        if after is None:
            del state[name]
        else:
            state[name] = after
    assert state == objects


@given(st.lists(st.tuples(st.booleans(), names), max_size=30))
def test_a_watch_that_is_never_interrupted_reports_exactly_what_happened(writes: list[tuple[bool, str]]) -> None:
    server = Server()
    client = Client(server)
    client.list()

    for is_put, name in writes:
        server.put(name) if is_put else server.delete(name)
        client.watch(1, bookmark=False)

    assert len(client.changes) == len(server.log)


def test_a_deleted_object_is_reported_with_its_last_state() -> None:
    cache = WatchCache()
    first = {"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"}, "phase": "Running"}
    last = {"metadata": {"name": "p", "uid": "u", "resourceVersion": "2"}, "phase": "Failed"}
    cache.relist([first], "1")

    assert cache.apply_event("DELETED", last) == [ObjectChange(last, None)]


def test_a_new_object_of_the_same_name_is_a_deletion_and_a_creation() -> None:
    cache = WatchCache()
    first = {"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"}}
    second = {"metadata": {"name": "p", "uid": "v", "resourceVersion": "9"}}
    cache.relist([first], "1")

    assert cache.relist([second], "9") == [ObjectChange(first, None), ObjectChange(None, second)]
