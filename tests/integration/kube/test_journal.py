"""The journal in ConfigMaps of a real API server that is killed between calls and comes back."""

from __future__ import annotations

import threading

import pytest

from elasticdl.kube.api import Api
from elasticdl.kube.kinds import CONFIG_MAP
from elasticdl.master.kubernetes.journal import ConfigMapJournal, JournalError, JournalTaken
from tests.integration.kube.apiserver import ApiServer
from tests.integration.kube.conftest import Connect

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "00000000-0000-0000-0000-00000000000a"}


def journal_of(api: Api, timeout_s: float = 60.0) -> ConfigMapJournal:
    return ConfigMapJournal(api, "mnist", api.namespace, OWNER, 1, timeout_s=timeout_s)


def names(api: Api) -> list[str]:
    return [one["metadata"]["name"] for one in api.list(CONFIG_MAP)[0]]


def test_a_journal_grows_is_compacted_and_read_again(api: Api) -> None:
    journal = journal_of(api)
    assert list(journal.replay()) == []
    records = [bytes([number]) * 1_125 for number in range(20)]
    for record in records:
        journal.append([record])
    assert names(api) == [f"mnist-journal-00000{number}" for number in range(4)]
    assert list(journal_of(api).replay()) == records

    journal = journal_of(api)
    list(journal.replay())
    state = bytes(range(256)) * 4_000  # a megabyte
    journal.compact(state)
    journal.append([b"after"])

    assert names(api) == [f"mnist-journal-00000{number}" for number in (0, 4, 5, 6)]
    again = journal_of(api)
    assert list(again.replay()) == [state, b"after"]
    assert again.events == 1
    found = api.get(CONFIG_MAP, "mnist-journal-000004") or {}
    assert found["metadata"]["ownerReferences"] == [OWNER]


def test_a_second_master_takes_over_and_the_first_never_writes_again(api: Api, connect: Connect) -> None:
    old = journal_of(api)
    list(old.replay())
    old.append([b"one"])

    new = journal_of(connect(namespace=api.namespace))
    assert list(new.replay()) == [b"one"]

    with pytest.raises(JournalTaken, match="another master writes the journal of mnist"):
        old.append([b"two"])
    with pytest.raises(JournalError):
        old.compact(b"{}")
    new.append([b"three"])
    assert list(journal_of(api).replay()) == [b"one", b"three"]


def test_a_server_that_is_killed_between_writes_is_waited_for(server: ApiServer, api: Api) -> None:
    journal = journal_of(api)
    list(journal.replay())
    journal.append([b"before"])

    server.kill()
    starter = threading.Thread(target=server.start)
    starter.start()
    journal.append([b"while it was away"])
    journal.compact(b"{}")
    journal.append([b"after"])
    starter.join()

    assert list(journal_of(api).replay()) == [b"{}", b"after"]


def test_a_server_that_is_killed_at_any_moment_loses_and_doubles_nothing(server: ApiServer, api: Api) -> None:
    journal = journal_of(api)
    list(journal.replay())
    written: list[bytes] = []
    done = threading.Event()

    def write() -> None:
        while not done.is_set() or len(written) < 50:
            record = b"%d" % len(written) * 300
            journal.append([record])
            written.append(record)

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(3):
        server.kill()
        server.start()
    done.set()
    writer.join(60)

    assert not writer.is_alive()
    assert list(journal_of(api).replay()) == written


def test_a_server_that_stays_away_ends_the_master(server: ApiServer, api: Api) -> None:
    journal = journal_of(api, timeout_s=0.3)
    list(journal.replay())
    server.kill()
    try:
        with pytest.raises(JournalError, match=r"did not answer for 0\.3 s"):
            journal.append([b"lost"])
    finally:
        server.start()

    with pytest.raises(JournalError):
        journal.append([b"never"])
    assert list(journal_of(api).replay()) in ([], [b"lost"])
