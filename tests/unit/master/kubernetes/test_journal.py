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


def journal_of(api: FaultyApi, timeout_s: float = 60.0, run: int = 1) -> ConfigMapJournal:
    return ConfigMapJournal(
        cast("Api", api), "mnist", "team", {"uid": "o"}, run, timeout_s=timeout_s, sleep=lambda _: None
    )


def content_of(store: ObjectStore) -> list[bytes]:
    return list(journal_of(FaultyApi(store)).replay())


def test_a_small_record_is_a_small_write_however_long_the_journal_is() -> None:
    """The store of a cluster keeps all versions of an object for minutes: what is sent again and again fills it."""
    api = FaultyApi(ObjectStore())
    sent: list[int] = []
    journal = journal_of(api)
    list(journal.replay())
    create, replace = api.create, api.replace

    def weighed(write: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def weigh(document: dict[str, Any]) -> Any:
            sent.append(len(document["binaryData"]["content"]))
            return write(document)

        return weigh

    with mock.patch.object(api, "create", weighed(create)), mock.patch.object(api, "replace", weighed(replace)):
        for _ in range(2000):
            journal.append([b"x" * 100])

    assert sum(sent) / 2000 < 8 << 10
    assert max(sent) < 16 << 10
    assert len(sent) < 2000 * 1.05, "beginning a segment takes two writes"


payloads = st.binary(min_size=0, max_size=70)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(payloads, max_size=4)),
        st.tuples(st.just("compact"), st.binary(min_size=1, max_size=150)),
    ),
    min_size=1,
    max_size=8,
)
troubles = st.lists(st.sampled_from(["ok", "ok", "ok", "response lost", "unavailable"]), max_size=60)
deaths = st.sampled_from(["crash before", "crash after"])


def do(journal: ConfigMapJournal, operation: tuple[str, Any]) -> None:
    getattr(journal, operation[0])(operation[1])


def after(content: list[bytes], operation: tuple[str, Any]) -> list[bytes]:
    return content + operation[1] if operation[0] == "append" else [operation[1]]


def allowed(content: list[bytes], operation: tuple[str, Any]) -> list[list[bytes]]:
    """What a master that dies within the operation may leave behind."""
    return [content, after(content, operation)]


@given(operations, troubles)
def test_what_was_appended_is_there_whatever_answers_were_lost(done: list[tuple[str, Any]], faults: list[str]) -> None:
    store, content = ObjectStore(), list[bytes]()
    with small_segments():
        journal = journal_of(FaultyApi(store, faults))
        assert list(journal.replay()) == []
        for operation in done:
            do(journal, operation)
            content = after(content, operation)
        journal.close()

        assert content_of(store) == content


@given(st.data(), operations)
@settings(max_examples=examples(300))
def test_a_master_that_dies_anywhere_leaves_one_whole_journal(data: st.DataObject, done: list[tuple[str, Any]]) -> None:
    store, content = ObjectStore(), list[bytes]()
    with small_segments():
        for operation in done:
            calls = data.draw(st.integers(0, 12), "calls before its death")
            journal = journal_of(FaultyApi(store, ["ok"] * calls + [data.draw(deaths)]))
            try:
                assert list(journal.replay()) == content
                do(journal, operation)
                content = after(content, operation)
            except Crash:
                found = content_of(store)
                assert found in [content, *allowed(content, operation)]
                content = found
        assert content_of(store) == content


@given(operations, operations, st.integers(1, 20))
@settings(max_examples=examples(500))
def test_of_two_masters_only_one_writes_wherever_the_second_comes_in(
    before: list[tuple[str, Any]], then: list[tuple[str, Any]], moment: int
) -> None:
    store, heard = ObjectStore(), list[bytes]()
    with small_segments():
        do(opened(FaultyApi(store)), ("append", [b"from the start"]))
        first, second = FaultyApi(store), journal_of(FaultyApi(store))
        first.before[moment] = lambda: heard.extend(second.replay())
        old, content = journal_of(first), [b"from the start"]
        possible = [content, *_prefixes(content, before)]
        assert list(old.replay()) == content
        is_first_alive, content = go_on(old, before, content)
        if first.before:
            return  # the second never came
        assert heard in possible
        _, heard = go_on(second, then, heard)

        writing = [
            b"%d" % number
            for number, one in enumerate((old, second))
            if go_on(one, [("append", [b"%d" % number])], [])[0]
        ]
        assert len(writing) <= 1
        found = content_of(store)
        if writing == [b"1"] or (not writing and not is_first_alive):
            assert found == heard + writing
        elif writing == [b"0"]:
            assert found == content + writing


def opened(api: FaultyApi) -> ConfigMapJournal:
    journal = journal_of(api)
    list(journal.replay())
    return journal


def go_on(journal: ConfigMapJournal, done: list[tuple[str, Any]], content: list[bytes]) -> tuple[bool, list[bytes]]:
    """Whether it could do all of it, and what it has written then."""
    for operation in done:
        try:
            do(journal, operation)
        except JournalError:
            return False, content
        content = after(content, operation)
    return True, content


def _prefixes(content: list[bytes], done: list[tuple[str, Any]]) -> list[list[bytes]]:
    """What the journal may hold while the operations are under api."""
    found = list[list[bytes]]()
    for operation in done:
        found += [content, *allowed(content, operation)]
        content = after(content, operation)
    return [*found, content]


def test_events_are_counted_since_the_last_state() -> None:
    store = ObjectStore()
    journal = journal_of(FaultyApi(store))
    list(journal.replay())
    journal.append([b"[1]", b"[2]"])
    assert (journal.events, journal.grown_bytes) == (2, 6)
    journal.compact(b"{}")
    assert (journal.events, journal.grown_bytes) == (0, 0)
    journal.append([b"[3]"])

    again = journal_of(FaultyApi(store))
    assert list(again.replay()) == [b"{}", b"[3]"]
    assert (again.events, again.grown_bytes) == (1, 3)


def test_a_segment_that_is_full_is_followed_by_another_and_compaction_leaves_one() -> None:
    store = ObjectStore()
    journal = journal_of(FaultyApi(store))
    list(journal.replay())
    for _ in range(5):
        journal.append([b"x" * (journal_segments.SEGMENT_BYTES // 4)])
    assert sorted(store.objects) == [f"mnist-journal-00000{number}" for number in (0, 1, 2)]

    journal.compact(b"y" * (600 << 10))

    assert sorted(store.objects) == [f"mnist-journal-00000{number}" for number in (0, 3, 4)]
    assert content_of(store) == [b"y" * (600 << 10)]


def test_a_server_that_stays_away_ends_the_master_and_it_never_writes_again() -> None:
    store = ObjectStore()
    api = FaultyApi(store)
    journal = journal_of(api, timeout_s=0.0)
    list(journal.replay())
    api.faults = ["unavailable"]

    with pytest.raises(JournalError, match="did not answer for 0 s"):
        journal.append([b"[1]"])
    with pytest.raises(JournalError, match="did not answer"):
        journal.append([b"[2]"])
    assert content_of(store) == []


def test_a_master_that_was_replaced_is_told_so() -> None:
    store = ObjectStore()
    old, new = journal_of(FaultyApi(store)), journal_of(FaultyApi(store))
    list(old.replay())
    list(new.replay())

    with pytest.raises(JournalTaken, match="another master writes the journal of mnist"):
        old.append([b"[1]"])
    new.append([b"[2]"])
    assert content_of(store) == [b"[2]"]


def test_an_annotation_of_somebody_else_is_no_other_master() -> None:
    store = ObjectStore()
    journal = journal_of(FaultyApi(store))
    list(journal.replay())
    journal.append([b"[0]"])
    touched = store.objects["mnist-journal-000001"]
    store.write(
        touched | {"metadata": touched["metadata"] | {"annotations": {"seen": "yes"}}}, touched["metadata"]["uid"]
    )

    journal.append([b"[1]"])

    assert content_of(store) == [b"[0]", b"[1]"]


def test_a_missing_segment_is_not_passed_over() -> None:
    store = ObjectStore()
    journal = journal_of(FaultyApi(store))
    with small_segments():
        list(journal.replay())
        for number in range(6):
            journal.append([b"%20d" % number])
    del store.objects["mnist-journal-000002"]

    with pytest.raises(JournalDamaged, match="segment 2 of it is missing"):
        content_of(store)


def test_a_master_that_is_slow_to_tidy_up_takes_nothing_from_the_one_after_it() -> None:
    store = ObjectStore()
    died = opened(FaultyApi(store))
    died.append([b"[1]"])
    stray = store.objects["mnist-journal-000001"]
    words = stray["data"] | {"number": "2", "id": "nobody's"}
    store.write(stray | {"metadata": stray["metadata"] | {"name": "mnist-journal-000002"}, "data": words})
    api, latest = FaultyApi(store), journal_of(FaultyApi(store))

    def take_over() -> None:
        assert list(latest.replay()) == [b"[1]"]
        latest.append([b"x" * (64 << 10)])

    calls = FaultyApi(copy.deepcopy(store))
    opened(calls)
    api.before[calls.calls] = take_over  # before its last call, which deletes what is nobody's
    opened(api)

    assert content_of(store) == [b"[1]", b"x" * (64 << 10)]


@given(st.lists(st.lists(payloads, min_size=1, max_size=2), min_size=1, max_size=5), st.data())
def test_a_changed_bit_in_a_config_map_is_refused(writes: list[list[bytes]], data: st.DataObject) -> None:
    store = ObjectStore()
    with small_segments():
        journal = journal_of(FaultyApi(store))
        list(journal.replay())
        for write in writes:
            journal.append(write)
        name = data.draw(st.sampled_from(sorted(store.objects)))
        content = bytearray(base64.b64decode(store.objects[name]["binaryData"]["content"]))
        bit = data.draw(st.integers(0, 8 * len(content) - 1))
        content[bit // 8] ^= 1 << bit % 8
        store.objects[name]["binaryData"]["content"] = base64.b64encode(content).decode()

        with pytest.raises((JournalDamaged, JournalUnreadable)):
            content_of(store)


@pytest.mark.parametrize("key", ["number", "id"])
def test_a_segment_that_is_not_the_one_that_was_named_is_refused(key: str) -> None:
    store = ObjectStore()
    journal = journal_of(FaultyApi(store))
    list(journal.replay())
    journal.append([b"[1]"])
    store.objects["mnist-journal-000001"]["data"][key] = "x"

    with pytest.raises(JournalDamaged):
        content_of(store)


def test_the_journal_of_an_earlier_run_is_removed() -> None:
    store = ObjectStore()
    earlier = journal_of(FaultyApi(store))
    list(earlier.replay())
    earlier.append([b"[1]"])

    later = journal_of(FaultyApi(store), run=2)
    assert list(later.replay()) == []
    later.append([b"[2]"])

    assert list(journal_of(FaultyApi(store), run=2).replay()) == [b"[2]"]
    with pytest.raises(JournalError):
        earlier.append([b"[3]"])
