"""The journal in ConfigMaps of a real API server that is killed and restarted."""

from __future__ import annotations

import threading

import pytest

from elasticdl.kube.api import Api
from elasticdl.kube.kinds import CONFIG_MAP
from elasticdl.master.kubernetes.journal import ConfigMapJournal, JournalError, JournalTaken
from tests.integration.kube.apiserver import ApiServer
from tests.integration.kube.conftest import Connect

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "00000000-0000-0000-0000-00000000000a"}


def new_journal(api: Api, timeout_s: float = 60.0) -> ConfigMapJournal:
    return ConfigMapJournal(api, "mnist", api.namespace, OWNER, 1, timeout_s=timeout_s)


def config_map_names(api: Api) -> list[str]:
    return [config_map["metadata"]["name"] for config_map in api.list(CONFIG_MAP)[0]]


def test_a_journal_grows_is_compacted_and_replayed(api: Api) -> None:
    journal = new_journal(api)
    assert list(journal.replay()) == []
    records = [bytes([number]) * 1_125 for number in range(20)]
    for record in records:
        journal.append([record])
    assert config_map_names(api) == [f"mnist-journal-00000{number}" for number in range(4)]
    assert list(new_journal(api).replay()) == records

    journal = new_journal(api)
    list(journal.replay())
    state = bytes(range(256)) * 4_000  # a megabyte
    journal.compact(state)
    journal.append([b"after"])

    assert config_map_names(api) == [f"mnist-journal-00000{number}" for number in (0, 4, 5, 6)]
    replayed = new_journal(api)
    assert list(replayed.replay()) == [state, b"after"]
    assert replayed.events == 1
    config_map = api.get(CONFIG_MAP, "mnist-journal-000004") or {}
    assert config_map["metadata"]["ownerReferences"] == [OWNER]


def test_a_second_master_takes_over_and_the_first_never_writes_again(api: Api, connect: Connect) -> None:
    old = new_journal(api)
    list(old.replay())
    old.append([b"one"])

    new = new_journal(connect(namespace=api.namespace))
    assert list(new.replay()) == [b"one"]

    with pytest.raises(JournalTaken, match="another master writes the journal of mnist"):
        old.append([b"two"])
    with pytest.raises(JournalError):
        old.compact(b"{}")
    new.append([b"three"])
    assert list(new_journal(api).replay()) == [b"one", b"three"]


def test_writes_wait_for_a_server_that_is_restarted(server: ApiServer, api: Api) -> None:
    journal = new_journal(api)
    list(journal.replay())
    journal.append([b"before"])

    server.kill()
    starter = threading.Thread(target=server.start)
    starter.start()
    journal.append([b"while it was away"])
    journal.compact(b"{}")
    journal.append([b"after"])
    starter.join()

    assert list(new_journal(api).replay()) == [b"{}", b"after"]


def test_a_server_that_is_killed_at_any_moment_loses_and_duplicates_no_record(server: ApiServer, api: Api) -> None:
    journal = new_journal(api)
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
    assert list(new_journal(api).replay()) == written


def test_after_an_outage_of_the_server_the_journal_never_writes_again(server: ApiServer, api: Api) -> None:
    journal = new_journal(api, timeout_s=0.3)
    list(journal.replay())
    server.kill()
    try:
        with pytest.raises(JournalError, match=r"did not answer for 0\.3 s"):
            journal.append([b"lost"])
    finally:
        server.start()

    with pytest.raises(JournalError):
        journal.append([b"never"])
    assert list(new_journal(api).replay()) in ([], [b"lost"])
