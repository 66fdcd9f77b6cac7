"""How a master ends permanently: it writes a result, then scales its set to zero."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticdl.kube.errors import NotFound
from elasticdl.kube.kinds import CONFIG_MAP, STATEFUL_SET, ResourceKind, kind_of
from elasticdl.launcher.kubernetes import status_map
from elasticdl.launcher.kubernetes.naming import Owner

Document = dict[str, Any]

SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "digits-master", "uid": "new"}}


class OneNamespace:
    """An API server with the objects of one namespace."""

    def __init__(self, *objects: Document) -> None:
        self.objects = {(kind_of(document), document["metadata"]["name"]): document for document in objects}
        self.calls: list[str] = []

    def get(self, kind: ResourceKind, name: str, namespace: str = "") -> Document | None:
        return self.objects.get((kind, name))

    def create(self, document: Document) -> Document:
        self.calls.append(f"create {document['metadata']['name']}")
        self.objects[kind_of(document), document["metadata"]["name"]] = document
        return document

    def patch(self, kind: ResourceKind, name: str, change: Document, namespace: str = "", sub: str = "") -> Document:
        if (kind, name) not in self.objects:
            raise NotFound(f"no {name}")
        self.calls.append(f"patch {name} {sub}".strip())
        document = self.objects[kind, name]
        for part, values in change.items():
            document[part] = document.get(part, {}) | values
        return document

    def result(self) -> Document:
        result: Document = json.loads(self.objects[CONFIG_MAP, "digits-status"]["data"]["result.json"])
        return result


def status(uid: str, **data: str) -> Document:
    owner = Owner("apps/v1", "StatefulSet", "digits-master", uid).reference
    metadata = {"name": "digits-status", "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def refuse(api: OneNamespace) -> None:
    status_map.write_refusal(api, "digits", "default", "no such model", 2)  # type: ignore[arg-type]


def test_a_job_that_cannot_begin_writes_a_result_before_it_retires_its_master() -> None:
    api = OneNamespace(json.loads(json.dumps(SET)))

    refuse(api)

    assert api.calls == ["create digits-status", "patch digits-master scale"]
    assert (api.result()["phase"], api.result()["reason"], api.result()["exit_code"]) == ("failed", "no such model", 2)
    assert api.objects[STATEFUL_SET, "digits-master"]["spec"] == {"replicas": 0}
    metadata = api.objects[CONFIG_MAP, "digits-status"]["metadata"]
    assert metadata["ownerReferences"][0]["uid"] == "new"
    assert metadata["labels"]["elasticdl.org/role"] == "status"


def test_what_the_master_wrote_before_stays_beside_the_result() -> None:
    api = OneNamespace(json.loads(json.dumps(SET)), status("new", **{"status.json": "{}"}))

    refuse(api)

    assert set(api.objects[CONFIG_MAP, "digits-status"]["data"]) == {"status.json", "result.json"}


def test_an_existing_result_is_not_replaced_but_the_master_is_retired_again() -> None:
    api = OneNamespace(json.loads(json.dumps(SET)), status("new", **{"result.json": '{"phase": "succeeded"}'}))

    refuse(api)

    assert api.result() == {"phase": "succeeded"}
    assert api.calls == ["patch digits-master scale"]


def test_nothing_is_written_for_a_set_that_was_deleted() -> None:
    api = OneNamespace()

    refuse(api)
    status_map.retire_master(api, "digits", "default")  # type: ignore[arg-type]

    assert api.calls == []


@pytest.mark.parametrize(
    ("status_document", "expected"),
    [
        (None, None),
        (status("new"), None),
        (status("old", **{"result.json": '{"phase": "failed"}'}), None),
        (status("new", **{"result.json": '{"phase": "failed"}'}), {"phase": "failed"}),
    ],
)
def test_a_result_of_an_earlier_job_of_the_same_name_does_not_count(
    status_document: Document | None, expected: Document | None
) -> None:
    assert status_map.read_result(status_document, "new") == expected
