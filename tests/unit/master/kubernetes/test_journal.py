"""Whichever calls fail: what was appended stays in the journal, in order, and only one master ever writes."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.errors import JournalDamaged, JournalUnreadable
from elasticdl.kube.api import Api
from elasticdl.master.kubernetes import journal_segments
from elasticdl.master.kubernetes.journal import ConfigMapJournal, JournalError, JournalTaken
from tests.properties import examples
from tests.unit.kube.fake_config_maps import Crash, FaultyApi, ObjectStore


@contextmanager
def small_segments() -> Iterator[None]:
    with (
        mock.patch.object(journal_segments, "SEGMENT_BYTES", 40),
        mock.patch.object(journal_segments, "MAX_SEGMENT_BYTES", 50),
    ):
        yield


def new_journal(api: FaultyApi, timeout_s: float = 60.0, run: int = 1) -> ConfigMapJournal:
    return ConfigMapJournal(
        cast("Api", api), "mnist", "team", {"uid": "o"}, run, timeout_s=timeout_s, sleep=lambda _: None
    )


def read_content(store: ObjectStore) -> list[bytes]:
    return list(new_journal(FaultyApi(store)).replay())


def test_a_small_record_is_a_small_write_however_long_the_journal_is() -> None:
    """etcd keeps all versions of an object for minutes: repeated large writes would fill it."""
    api = FaultyApi(ObjectStore())
    written_bytes: list[int] = []
    journal = new_journal(api)
    list(journal.replay())
    create, replace = api.create, api.replace

    def measure(write: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def measured_write(document: dict[str, Any]) -> Any:
            written_bytes.append(len(document["binaryData"]["content"]))
            return write(document)

        return measured_write

    with mock.patch.object(api, "create", measure(create)), mock.patch.object(api, "replace", measure(replace)):
        for _ in range(2000):
            journal.append([b"x" * 100])

    assert sum(written_bytes) / 2000 < 8 << 10
    assert max(written_bytes) < 16 << 10
    assert len(written_bytes) < 2000 * 1.05, "a new segment takes two writes"


payloads = st.binary(min_size=0, max_size=70)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(payloads, max_size=4)),
        st.tuples(st.just("compact"), st.binary(min_size=1, max_size=150)),
    ),
    min_size=1,
    max_size=8,
)
fault_lists = st.lists(st.sampled_from(["ok", "ok", "ok", "response lost", "unavailable"]), max_size=60)
crashes = st.sampled_from(["crash before", "crash after"])


def perform(journal: ConfigMapJournal, operation: tuple[str, Any]) -> None:
    getattr(journal, operation[0])(operation[1])


def content_after(content: list[bytes], operation: tuple[str, Any]) -> list[bytes]:
    return content + operation[1] if operation[0] == "append" else [operation[1]]


def possible_contents(content: list[bytes], operation: tuple[str, Any]) -> list[list[bytes]]:
    """The contents that a master may leave behind if it is killed during the operation."""
    return [content, content_after(content, operation)]


@given(operations, fault_lists)
def test_what_was_appended_stays_whichever_responses_were_lost(
    operations_done: list[tuple[str, Any]], faults: list[str]
) -> None:
    store, content = ObjectStore(), list[bytes]()
    with small_segments():
        journal = new_journal(FaultyApi(store, faults))
        assert list(journal.replay()) == []
        for operation in operations_done:
            perform(journal, operation)
            content = content_after(content, operation)
        journal.close()

        assert read_content(store) == content


@given(st.data(), operations)
@settings(max_examples=examples(300))
def test_a_master_that_is_killed_at_any_call_leaves_one_complete_journal(
    data: st.DataObject, operations_done: list[tuple[str, Any]]
) -> None:
    store, content = ObjectStore(), list[bytes]()
    with small_segments():
        for operation in operations_done:
            calls = data.draw(st.integers(0, 12), "calls before the crash")
            journal = new_journal(FaultyApi(store, ["ok"] * calls + [data.draw(crashes)]))
            try:
                assert list(journal.replay()) == content
                perform(journal, operation)
                content = content_after(content, operation)
            except Crash:
                left_behind = read_content(store)
                assert left_behind in [content, *possible_contents(content, operation)]
                content = left_behind
        assert read_content(store) == content


@given(operations, operations, st.integers(1, 20))
@settings(max_examples=examples(500))
def test_of_two_masters_only_one_writes_whenever_the_second_takes_over(
    first_operations: list[tuple[str, Any]], second_operations: list[tuple[str, Any]], takeover_call: int
) -> None:
    store, replayed = ObjectStore(), list[bytes]()
    with small_segments():
        perform(open_journal(FaultyApi(store)), ("append", [b"from the start"]))
        first_api, second = FaultyApi(store), new_journal(FaultyApi(store))
        first_api.before[takeover_call] = lambda: replayed.extend(second.replay())
        first, content = new_journal(first_api), [b"from the start"]
        possible = [content, *_contents_on_the_way(content, first_operations)]
        assert list(first.replay()) == content
        is_first_alive, content = perform_all(first, first_operations, content)
        if first_api.before:
            return  # the second master never started
        assert replayed in possible
        _, replayed = perform_all(second, second_operations, replayed)

        writers = [
            b"%d" % number
            for number, journal in enumerate((first, second))
            if perform_all(journal, [("append", [b"%d" % number])], [])[0]
        ]
        assert len(writers) <= 1
        stored = read_content(store)
        if writers == [b"1"] or (not writers and not is_first_alive):
            assert stored == replayed + writers
        elif writers == [b"0"]:
            assert stored == content + writers


def open_journal(api: FaultyApi) -> ConfigMapJournal:
    journal = new_journal(api)
    list(journal.replay())
    return journal


def perform_all(
    journal: ConfigMapJournal, operations_done: list[tuple[str, Any]], content: list[bytes]
) -> tuple[bool, list[bytes]]:
    """Whether all operations succeeded, and the content that they led to."""
    for operation in operations_done:
        try:
            perform(journal, operation)
        except JournalError:
            return False, content
        content = content_after(content, operation)
    return True, content


def _contents_on_the_way(content: list[bytes], operations_done: list[tuple[str, Any]]) -> list[list[bytes]]:
    """The contents that the journal may have while the operations are performed."""
    contents = list[list[bytes]]()
    for operation in operations_done:
        contents += [content, *possible_contents(content, operation)]
        content = content_after(content, operation)
    return [*contents, content]


def test_events_are_counted_since_the_last_state() -> None:
    store = ObjectStore()
    journal = new_journal(FaultyApi(store))
    list(journal.replay())
    journal.append([b"[1]", b"[2]"])
    assert (journal.events, journal.grown_bytes) == (2, 6)
    journal.compact(b"{}")
    assert (journal.events, journal.grown_bytes) == (0, 0)
    journal.append([b"[3]"])

    replayed = new_journal(FaultyApi(store))
    assert list(replayed.replay()) == [b"{}", b"[3]"]
    assert (replayed.events, replayed.grown_bytes) == (1, 3)


def test_a_full_segment_is_followed_by_another_and_compaction_deletes_the_old_ones() -> None:
    store = ObjectStore()
    journal = new_journal(FaultyApi(store))
    list(journal.replay())
    for _ in range(5):
        journal.append([b"x" * (journal_segments.SEGMENT_BYTES // 4)])
    assert sorted(store.objects) == [f"mnist-journal-00000{number}" for number in (0, 1, 2)]

    journal.compact(b"y" * (600 << 10))

    assert sorted(store.objects) == [f"mnist-journal-00000{number}" for number in (0, 3, 4)]
    assert read_content(store) == [b"y" * (600 << 10)]


def test_after_an_outage_of_the_server_the_journal_never_writes_again() -> None:
    store = ObjectStore()
    api = FaultyApi(store)
    journal = new_journal(api, timeout_s=0.0)
    list(journal.replay())
    api.faults = ["unavailable"]

    with pytest.raises(JournalError, match="did not answer for 0 s"):
        journal.append([b"[1]"])
    with pytest.raises(JournalError, match="did not answer"):
        journal.append([b"[2]"])
    assert read_content(store) == []


def test_a_master_that_was_replaced_cannot_write() -> None:
    store = ObjectStore()
    old, new = new_journal(FaultyApi(store)), new_journal(FaultyApi(store))
    list(old.replay())
    list(new.replay())

    with pytest.raises(JournalTaken, match="another master writes the journal of mnist"):
        old.append([b"[1]"])
    new.append([b"[2]"])
    assert read_content(store) == [b"[2]"]


def test_an_annotation_on_a_config_map_does_not_count_as_another_master() -> None:
    store = ObjectStore()
    journal = new_journal(FaultyApi(store))
    list(journal.replay())
    journal.append([b"[0]"])
    segment = store.objects["mnist-journal-000001"]
    annotated = segment | {"metadata": segment["metadata"] | {"annotations": {"seen": "yes"}}}
    store.write(annotated, segment["metadata"]["uid"])

    journal.append([b"[1]"])

    assert read_content(store) == [b"[0]", b"[1]"]


def test_a_missing_segment_is_damage() -> None:
    store = ObjectStore()
    journal = new_journal(FaultyApi(store))
    with small_segments():
        list(journal.replay())
        for number in range(6):
            journal.append([b"%20d" % number])
    del store.objects["mnist-journal-000002"]

    with pytest.raises(JournalDamaged, match="its segment 2 is missing"):
        read_content(store)


def test_a_slow_master_deletes_no_segment_of_the_next_one() -> None:
    store = ObjectStore()
    killed = open_journal(FaultyApi(store))
    killed.append([b"[1]"])
    segment = store.objects["mnist-journal-000001"]
    data = segment["data"] | {"number": "2", "id": "unused"}
    store.write(segment | {"metadata": segment["metadata"] | {"name": "mnist-journal-000002"}, "data": data})
    api, latest = FaultyApi(store), new_journal(FaultyApi(store))

    def take_over() -> None:
        assert list(latest.replay()) == [b"[1]"]
        latest.append([b"x" * (64 << 10)])

    counting_api = FaultyApi(copy.deepcopy(store))
    open_journal(counting_api)
    api.before[counting_api.calls] = take_over  # before the last call, which deletes the unused segment
    open_journal(api)

    assert read_content(store) == [b"[1]", b"x" * (64 << 10)]


@given(st.lists(st.lists(payloads, min_size=1, max_size=2), min_size=1, max_size=5), st.data())
def test_a_changed_bit_in_a_config_map_is_damage(writes: list[list[bytes]], data: st.DataObject) -> None:
    store = ObjectStore()
    with small_segments():
        journal = new_journal(FaultyApi(store))
        list(journal.replay())
        for write in writes:
            journal.append(write)
        name = data.draw(st.sampled_from(sorted(store.objects)))
        content = bytearray(base64.b64decode(store.objects[name]["binaryData"]["content"]))
        bit = data.draw(st.integers(0, 8 * len(content) - 1))
        content[bit // 8] ^= 1 << bit % 8
        store.objects[name]["binaryData"]["content"] = base64.b64encode(content).decode()

        with pytest.raises((JournalDamaged, JournalUnreadable)):
            read_content(store)


@pytest.mark.parametrize("key", ["number", "id"])
def test_a_segment_that_is_not_the_listed_one_is_damage(key: str) -> None:
    store = ObjectStore()
    journal = new_journal(FaultyApi(store))
    list(journal.replay())
    journal.append([b"[1]"])
    store.objects["mnist-journal-000001"]["data"][key] = "x"

    with pytest.raises(JournalDamaged):
        read_content(store)


def test_the_journal_of_an_earlier_run_is_removed() -> None:
    store = ObjectStore()
    earlier = new_journal(FaultyApi(store))
    list(earlier.replay())
    earlier.append([b"[1]"])

    later = new_journal(FaultyApi(store), run=2)
    assert list(later.replay()) == []
    later.append([b"[2]"])

    assert list(new_journal(FaultyApi(store), run=2).replay()) == [b"[2]"]
    with pytest.raises(JournalError):
        earlier.append([b"[3]"])
