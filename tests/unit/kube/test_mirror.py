"""Whatever is missed, repeated or forgotten: the mirror ends with what the server has, and tells each change once."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.kube.watch import ObjectChange, WatchCache

Document = dict[str, Any]


class Server:
    """Objects with versions and the log of what happened, from which watches are served until it is compacted."""

    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[str, Document] = {}
        self.log: list[tuple[int, str, Document]] = []
        self.oldest = 1

    def put(self, name: str) -> None:
        self.version += 1
        known = self.objects.get(name)
        uid = known["metadata"]["uid"] if known else f"uid-{self.version}"
        metadata = {"name": name, "namespace": "n", "uid": uid, "resourceVersion": str(self.version)}
        self.objects[name] = {"metadata": metadata}
        self.log.append((self.version, "MODIFIED" if known else "ADDED", self.objects[name]))

    def delete(self, name: str) -> None:
        if (known := self.objects.pop(name, None)) is not None:
            self.version += 1
            last = {"metadata": known["metadata"] | {"resourceVersion": str(self.version)}}
            self.log.append((self.version, "DELETED", last))

    def since(self, version: int) -> list[tuple[int, str, Document]]:
        return [entry for entry in self.log if entry[0] > version]


class Client:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.mirror = WatchCache()
        self.told: list[ObjectChange] = []

    def list(self) -> None:
        items = [dict(item) for item in self.server.objects.values()]
        self.told += self.mirror.relist(items, str(self.server.version))

    def watch(self, most: int, *, bookmark: bool) -> None:
        """At most `most` events, then the connection is cut; 410 where the version is forgotten."""
        if not self.mirror.version or int(self.mirror.version) < self.server.oldest:
            self.list()
            return
        coming = self.server.since(int(self.mirror.version))
        for _, type_, item in coming[:most]:
            self.told += self.mirror.apply_event(type_, item)
        if bookmark and most >= len(coming):
            mark = {"kind": "Pod", "metadata": {"resourceVersion": str(self.server.version)}}
            assert self.mirror.apply_event("BOOKMARK", mark) == []


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
def test_any_history_ends_with_what_the_server_has_and_every_change_is_told_once(
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

    assert {item["metadata"]["name"]: item for item in client.mirror.objects.values()} == server.objects
    assert_chained(client.told, server.objects)


def assert_chained(told: list[ObjectChange], objects: dict[str, Document]) -> None:
    """Each change begins where the one before it ended, none is told twice, and the last leaves what is there."""
    known: dict[str, Document] = {}
    for before, after in told:
        one = after or before
        assert one is not None
        name = one["metadata"]["name"]
        if before is None:
            assert name not in known, "told as new, but known"
        else:
            assert before["metadata"]["uid"] == known[name]["metadata"]["uid"]
        if before is not None and after is not None:
            assert before == known[name] and before != after, "a change that changed nothing"
        if after is None:
            del known[name]
        else:
            known[name] = after
    assert known == objects


@given(st.lists(st.tuples(st.booleans(), names), max_size=30))
def test_a_watch_that_is_never_cut_tells_all_that_happened_and_nothing_else(writes: list[tuple[bool, str]]) -> None:
    server = Server()
    client = Client(server)
    client.list()

    for is_put, name in writes:
        server.put(name) if is_put else server.delete(name)
        client.watch(1, bookmark=False)

    assert len(client.told) == len(server.log)


def test_what_is_gone_is_told_as_it_last_was() -> None:
    mirror = WatchCache()
    first = {"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"}, "phase": "Running"}
    last = {"metadata": {"name": "p", "uid": "u", "resourceVersion": "2"}, "phase": "Failed"}
    mirror.relist([first], "1")

    assert mirror.apply_event("DELETED", last) == [ObjectChange(last, None)]


def test_another_object_of_the_same_name_is_an_end_and_a_beginning() -> None:
    mirror = WatchCache()
    first = {"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"}}
    other = {"metadata": {"name": "p", "uid": "v", "resourceVersion": "9"}}
    mirror.relist([first], "1")

    assert mirror.relist([other], "9") == [ObjectChange(first, None), ObjectChange(None, other)]
