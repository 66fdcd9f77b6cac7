"""Calls of `Api` against a real API server."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from elasticdl.kube import errors, kinds
from elasticdl.kube.api import ALL_NAMESPACES, Api
from elasticdl.kube.kinds import CONFIG_MAP, NODE, POD
from tests.integration.kube.apiserver import NOBODY, ApiServer
from tests.integration.kube.conftest import Connect


def config_map(name: str, namespace: str = "", labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels or {}} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def test_an_object_exists_from_its_creation_to_its_deletion(api: Api, namespace: str) -> None:
    assert api.get(CONFIG_MAP, "a") is None

    created = api.create(config_map("a", word="one"))

    assert created["metadata"]["namespace"] == namespace
    assert api.get(CONFIG_MAP, "a") == created
    assert api.delete(CONFIG_MAP, "a") is True
    assert api.delete(CONFIG_MAP, "a") is False
    assert api.get(CONFIG_MAP, "a") is None


def test_a_dry_run_checks_and_creates_nothing(api: Api) -> None:
    api.create(config_map("a"), dry_run=True)

    assert api.get(CONFIG_MAP, "a") is None
    with pytest.raises(errors.InvalidObject, match=r"create configmaps Wrong_Name"):
        api.create(config_map("Wrong_Name"), dry_run=True)


def test_a_second_object_of_a_name_and_a_concurrent_change_are_different_errors(api: Api) -> None:
    first = api.create(config_map("a", word="one"))

    with pytest.raises(errors.AlreadyExists):
        api.create(config_map("a"))
    api.replace(first | {"data": {"word": "two"}})
    with pytest.raises(errors.Conflict):
        api.replace(first | {"data": {"word": "three"}})
    assert (api.get(CONFIG_MAP, "a") or {})["data"] == {"word": "two"}


def test_a_patch_merges_and_removes(api: Api) -> None:
    api.create(config_map("a", kept="1", removed="2"))

    patched = api.patch(CONFIG_MAP, "a", {"data": {"removed": None, "new": "3"}})

    assert patched["data"] == {"kept": "1", "new": "3"}
    with pytest.raises(errors.NotFound):
        api.patch(CONFIG_MAP, "b", {"data": {}})


def test_a_deletion_with_the_uid_of_another_object_deletes_nothing(api: Api) -> None:
    uid = api.create(config_map("a"))["metadata"]["uid"]

    assert api.delete(CONFIG_MAP, "a", uid="00000000-0000-0000-0000-000000000000") is False
    assert api.get(CONFIG_MAP, "a") is not None
    assert api.delete(CONFIG_MAP, "a", uid=uid) is True


def test_a_list_has_all_pages_and_can_be_selected_by_labels(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticdl.kube.api.PAGE_SIZE", 2)
    for number in range(5):
        api.create(config_map(f"m-{number}", labels={"job": "a" if number % 2 else "b"}))

    all_items, version = api.list(CONFIG_MAP)
    selected, _ = api.list(CONFIG_MAP, labels="job=a")

    assert [item["metadata"]["name"] for item in all_items] == [f"m-{number}" for number in range(5)]
    assert [item["metadata"]["name"] for item in selected] == ["m-1", "m-3"]
    assert all(kinds.kind_of(item) is CONFIG_MAP for item in all_items)
    assert int(version) >= int(all_items[-1]["metadata"]["resourceVersion"])


def test_all_namespaces_are_listed_at_once(api: Api, namespace: str) -> None:
    api.create(config_map("everywhere"))

    items = [item for item in api.list(CONFIG_MAP, ALL_NAMESPACES)[0] if item["metadata"]["namespace"] == namespace]

    assert [item["metadata"]["name"] for item in items] == ["everywhere"]


def test_a_missing_right_is_named_with_the_role_that_grants_it(connect: Connect, namespace: str) -> None:
    api = connect(NOBODY, namespace=namespace)

    with pytest.raises(errors.Forbidden) as refused:
        api.list(POD)

    assert f"list pods in namespace {namespace} is forbidden" in str(refused.value)
    assert 'a Role with verbs ["list"], resources ["pods"]' in str(refused.value)
    assert not api.is_allowed("list", POD)
    with pytest.raises(errors.Forbidden, match=r"get nodes x in the cluster.*a ClusterRole"):
        api.get(NODE, "x")


def test_rights_are_checked_without_a_call(api: Api) -> None:
    assert api.is_allowed("create", POD) and api.is_allowed("get", POD, sub="log") and api.is_allowed("list", NODE)


def test_a_namespace_or_a_kind_that_does_not_exist_is_named(api: Api) -> None:
    with pytest.raises(errors.NotFound, match='namespaces "nowhere" not found'):
        api.create(config_map("a", "nowhere"))
    with pytest.raises(errors.NotFound, match=r"does not know things\.example\.org"):
        api.list(kinds.ResourceKind("example.org/v1", "Thing", "things"))


def test_a_watch_reports_what_happens_after_its_version(api: Api) -> None:
    api.create(config_map("before"))
    _, version = api.list(CONFIG_MAP)
    created = api.create(config_map("after"))
    api.delete(CONFIG_MAP, "before")

    watch = api.watch(CONFIG_MAP, "", "", version, 30)
    events = [next(watch), next(watch)]
    watch.close()

    assert [(type_, item["metadata"]["name"]) for type_, item in events] == [("ADDED", "after"), ("DELETED", "before")]
    assert events[0][1] == created


def test_a_watch_ends_at_once_when_another_thread_closes_it(api: Api) -> None:
    _, version = api.list(CONFIG_MAP)
    watch = api.watch(CONFIG_MAP, "", "", version, 300)
    ended = threading.Event()
    reader = threading.Thread(target=lambda: (list(watch), ended.set()))
    reader.start()

    watch.close()

    assert ended.wait(10)
    reader.join()


def test_an_api_survives_an_outage_of_its_server(server: ApiServer, api: Api) -> None:
    api.create(config_map("a"))

    server.kill()
    try:
        with pytest.raises(errors.ApiUnavailable, match=r"does not answer"):
            api.get(CONFIG_MAP, "a")
    finally:
        server.start()

    assert api.get(CONFIG_MAP, "a") is not None
    with pytest.raises(errors.Gone):
        next(api.watch(CONFIG_MAP, "", "", "1", 5))


def test_logs_of_a_pod_that_does_not_exist_are_an_error_that_names_it(api: Api) -> None:
    with pytest.raises(errors.NotFound, match=r"get pods/log p in namespace .*not found"):
        list(api.logs("p", ""))


def test_an_unreachable_port_and_a_missing_right_are_different_errors(
    connect: Connect, api: Api, namespace: str
) -> None:
    container = {"name": "main", "image": "none"}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}})

    with pytest.raises(errors.ApiUnavailable, match=r"create pods/portforward p in namespace"):
        api.port_forward("p", "", 50001)
    with pytest.raises(errors.Forbidden, match=r'verbs \["create"\], resources \["pods/portforward"\]'):
        connect(NOBODY, namespace=namespace).port_forward("p", "", 50001)
