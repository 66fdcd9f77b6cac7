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


def resource(**fields: Any) -> dict[str, Any]:
    spec = {"model": {"definition": "a.b.c"}, "cluster": {"image": "i:1"}} | fields
    return {"metadata": {"name": "mnist", "namespace": "team"}, "spec": spec}


def nodes(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema within a schema, with its path."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from nodes(node[key], f"{path}.{key}")


def test_the_file_in_deploy_is_up_to_date() -> None:
    file = ROOT / "deploy" / "crd" / "elasticjobs.yaml"

    assert file.read_text() == schema.crd_yaml(), "run `python deploy/render.py`"


def test_every_field_has_a_type_and_only_keywords_that_kubernetes_accepts() -> None:
    for path, node in nodes(schema.spec_schema(), "spec"):
        assert "type" in node or "x-kubernetes-int-or-string" in node, path
        assert not {"$ref", "anyOf", "allOf", "const", "title", "prefixItems"} & set(node), path
        assert not ("properties" in node and "additionalProperties" in node), path


def test_every_keyword_of_the_json_schema_of_a_job_is_translated() -> None:
    """A constraint of a new kind in JobSpec needs a translation in `schema`."""
    document = JobSpec.model_json_schema()
    translated = {*schema.KEPT_KEYWORDS, "$ref", "anyOf", "title", "description", "default", "exclusiveMinimum"}
    translated |= {"properties", "additionalProperties", "items"}
    keywords = {
        keyword
        for definition in (document, *document["$defs"].values())
        for _, node in nodes(definition)
        for keyword in node.keys() - {"$defs"}
    }

    assert keywords - translated == set()


def test_the_spec_has_every_field_of_a_job_that_is_not_set_elsewhere() -> None:
    properties = schema.spec_schema()["properties"]

    assert set(properties) == set(JobSpec.model_fields) - {"name"} | {"suspend"}
    assert "namespace" not in properties["cluster"]["properties"]
    assert not {"address", "start_method"} & set(properties["workers"]["properties"])
    assert set(properties["security"]["properties"]) == {"certificate_lifetime_s", "plain_nccl"}


def test_every_field_has_a_description_and_every_description_a_field() -> None:
    fields = {path.removeprefix(".") for path, _ in nodes(schema.spec_schema())}
    named_fields = {field for field in fields if not field.endswith((".items", ".additionalProperties"))}

    assert named_fields <= set(DESCRIPTIONS) <= fields


def test_parameters_keep_values_of_any_type() -> None:
    properties = schema.spec_schema()["properties"]

    assert properties["model"]["properties"]["params"]["x-kubernetes-preserve-unknown-fields"]
    assert properties["data"]["properties"]["training"]["nullable"]


def test_a_job_has_the_name_and_the_namespace_of_its_resource() -> None:
    job = resolve_elastic_job(resource(suspend=True))

    assert (job.name, job.cluster and job.cluster.namespace) == ("mnist", "team")


def test_an_integer_is_a_quantity() -> None:
    document = resource(cluster={"image": "i:1", "worker": {"requests": {"cpu": 2, "memory": "1Gi"}}})

    job = resolve_elastic_job(document)

    assert job.cluster is not None
    assert job.cluster.worker.requests == {"cpu": "2", "memory": "1Gi"}
    assert document["spec"]["cluster"]["worker"]["requests"]["cpu"] == 2


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
def test_an_error_names_the_job_and_the_field(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve_elastic_job(resource(**spec))

    assert words in str(caught.value)
    assert str(caught.value).startswith("ElasticJob mnist: ")
