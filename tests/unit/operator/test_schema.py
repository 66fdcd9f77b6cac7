from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.errors import SpecError
from elasticdl.operator import schema
from elasticdl.operator.field_descriptions import DESCRIPTIONS
from elasticdl.spec.job import JobSpec
from elasticdl.spec.load import resolve_elastic_job

ROOT = Path(__file__).parents[3]


def resource(**spec: Any) -> dict[str, Any]:
    whole = {"model": {"definition": "a.b.c"}, "cluster": {"image": "i:1"}} | spec
    return {"metadata": {"name": "mnist", "namespace": "team"}, "spec": whole}


def nodes(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema within a schema."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from nodes(node[key], f"{path}.{key}")


def test_the_file_in_deploy_is_the_schema_of_the_job() -> None:
    file = ROOT / "deploy" / "crd" / "elasticjobs.yaml"
    again = "run `python -m elasticdl.operator.schema > deploy/crd/elasticjobs.yaml`"

    assert file.read_text() == schema.crd_yaml(), again


def test_every_place_has_a_type_and_nothing_that_kubernetes_does_not_know() -> None:
    for path, node in nodes(schema.spec_schema(), "spec"):
        assert "type" in node or "x-kubernetes-int-or-string" in node, path
        assert not {"$ref", "anyOf", "allOf", "const", "title", "prefixItems"} & set(node), path
        assert not ("properties" in node and "additionalProperties" in node), path


def test_no_word_of_the_job_s_schema_is_lost() -> None:
    """A new kind of constraint in JobSpec has to be translated here, too."""
    document = JobSpec.model_json_schema()
    known = {*schema.KEPT_KEYWORDS, "$ref", "anyOf", "title", "description", "default", "exclusiveMinimum"}
    known |= {"properties", "additionalProperties", "items"}
    words = {
        word
        for part in (document, *document["$defs"].values())
        for _, node in nodes(part)
        for word in node.keys() - {"$defs"}
    }

    assert words - known == set()


def test_every_field_of_the_job_is_there_but_those_that_are_set_elsewhere() -> None:
    properties = schema.spec_schema()["properties"]

    assert set(properties) == set(JobSpec.model_fields) - {"name"} | {"suspend"}
    assert "namespace" not in properties["cluster"]["properties"]
    assert not {"address", "start_method"} & set(properties["workers"]["properties"])
    assert set(properties["security"]["properties"]) == {"certificate_lifetime_s", "plain_nccl"}


def test_every_field_has_a_description_and_every_description_a_field() -> None:
    fields = {path.removeprefix(".") for path, _ in nodes(schema.spec_schema())}
    named_fields = {field for field in fields if not field.endswith((".items", ".additionalProperties"))}

    assert named_fields <= set(DESCRIPTIONS) <= fields


def test_a_value_of_any_kind_is_kept_as_it_is() -> None:
    properties = schema.spec_schema()["properties"]

    assert properties["model"]["properties"]["params"]["x-kubernetes-preserve-unknown-fields"]
    assert properties["data"]["properties"]["training"]["nullable"]


def test_name_and_namespace_of_the_resource_are_those_of_the_job() -> None:
    job = resolve_elastic_job(resource(suspend=True))

    assert (job.name, job.cluster and job.cluster.namespace) == ("mnist", "team")


def test_a_whole_number_is_a_quantity() -> None:
    given = resource(cluster={"image": "i:1", "worker": {"requests": {"cpu": 2, "memory": "1Gi"}}})

    job = resolve_elastic_job(given)

    assert job.cluster is not None
    assert job.cluster.worker.requests == {"cpu": "2", "memory": "1Gi"}
    assert given["spec"]["cluster"]["worker"]["requests"]["cpu"] == 2


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"cluster": {}}, "cluster.image"),
        ({"cluster": None}, "cluster.image"),
        ({"workers": {"replicas": 9, "max": 8}}, "replicas 9 is outside min 1 .. max 8"),
        ({"model": None}, "model: a training job needs model.definition"),
        ({"worker": {"replicas": 2}}, "worker: unknown key; did you mean 'workers'?"),
        ({"cluster": {"image": "i", "worker": {"requests": {"memory": "4GB"}}}}, "cluster.worker.requests.memory"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_elastic_job(resource(**spec))

    assert words in str(caught.value)
    assert str(caught.value).startswith("ElasticJob mnist: ")
