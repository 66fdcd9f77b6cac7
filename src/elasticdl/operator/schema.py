"""The CustomResourceDefinition of ElasticJobs, made of the schema of `JobSpec`. The way back: `spec.elastic_job`.

`python -m elasticdl.operator.schema` prints it; deploy/crd/elasticjobs.yaml is that output.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import yaml

from elasticdl import __version__
from elasticdl.operator import rules
from elasticdl.operator.status import STATUS
from elasticdl.spec import options
from elasticdl.spec.elastic_job import QUANTITIES
from elasticdl.spec.job import JobSpec

Schema = dict[str, Any]

GROUP, VERSION, PLURAL = "elasticdl.org", "v1", "elasticjobs"

# Places of the JobSpec that are no choice of a person on Kubernetes: the resource's own name and namespace say the
# first two, the pod and its Secret the others. A field that would be ignored is no field.
_SET_ELSEWHERE = (
    "name",
    "cluster.namespace",
    "workers.address",
    *(f"security.{name}" for name in ("tls", "certificate", "key", "authority", "insecure")),
)
_MOST_RESOURCES, _MOST_VOLUMES, _LONGEST_QUANTITY = 16, 32, 32

_COLUMNS = (
    ("Phase", "string", ".status.phase"),
    ("Workers", "string", ".status.workersText"),
    ("Progress", "string", ".status.progress"),
    ("Metric", "string", ".status.metric"),
    ("Age", "date", ".metadata.creationTimestamp"),
)


def definition() -> dict[str, Any]:
    """The whole CustomResourceDefinition."""
    schema = {
        "type": "object",
        "description": "A training, evaluation, prediction or script job of ElasticDL.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec_schema(),
            "status": STATUS,
        },
        "x-kubernetes-validations": rules.ROOT,
    }
    served = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.workers.wish",
                "statusReplicasPath": ".status.workers.ready",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "description": _described(path)}
            for name, kind, path in _COLUMNS
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{PLURAL}.{GROUP}",
            "labels": {"app.kubernetes.io/name": "elasticdl", "elasticdl.org/version": __version__},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": "ElasticJob",
                "listKind": "ElasticJobList",
                "plural": PLURAL,
                "singular": "elasticjob",
                "shortNames": ["ej"],
                "categories": ["all"],
            },
            "versions": [served],
        },
    }


def _described(path: str) -> str:
    place: Schema = {"properties": {"status": STATUS}}
    for name in path.strip(".").split("."):
        place = place.get("properties", {}).get(name, {})
    return str(place.get("description", "Since when it is there."))


def spec_schema() -> Schema:
    """The JobSpec as Kubernetes wants schemas: inlined, structural, without what is set elsewhere."""
    document = JobSpec.model_json_schema()
    spec = _structural(document, document["$defs"], "")
    spec["properties"]["suspend"] = {
        "type": "boolean",
        "default": False,
        "description": "The job gives all its pods back and waits; false again: it goes on from its last checkpoint.",
    }
    spec["required"] = ["cluster"]
    properties = spec["properties"]
    counts = properties["workers"]["properties"]  # kubectl scale needs a wish to be there
    properties["workers"]["default"] = {name: counts[name]["default"] for name in ("wish", "min", "max")}
    spec["x-kubernetes-validations"] = rules.SPEC
    properties["workers"]["x-kubernetes-validations"] = rules.WORKERS
    properties["ps"]["x-kubernetes-validations"] = rules.PS
    volumes = properties["cluster"]["properties"]["volumes"]
    volumes["maxItems"] = _MOST_VOLUMES
    volumes["items"]["x-kubernetes-validations"] = rules.VOLUME
    for role in ("master", "worker", "ps"):
        one = properties["cluster"]["properties"][role]
        one["x-kubernetes-validations"] = rules.ROLE
        for name in QUANTITIES:
            one["properties"][name] |= {
                "additionalProperties": {"x-kubernetes-int-or-string": True, "maxLength": _LONGEST_QUANTITY},
                "maxProperties": _MOST_RESOURCES,
                "x-kubernetes-validations": rules.RESOURCES,
            }
    return spec


def _structural(given: Schema, known: Mapping[str, Schema], path: str) -> Schema:
    schema = dict(given)
    if "$ref" in schema:
        schema = {**known[schema.pop("$ref").rpartition("/")[2]], **schema}
    if "anyOf" in schema:
        (other,) = [one for one in schema.pop("anyOf") if one != {"type": "null"}]
        result = _structural({**schema, **other}, known, path)
        return result if result["type"] == "object" or "enum" in result else {**result, "nullable": True}
    result = {key: schema[key] for key in KEPT if key in schema}
    if described := _description(path, schema):
        result["description"] = described
    if "exclusiveMinimum" in schema:  # a number in JSON Schema, a flag here
        result |= {"minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
    if _has_static_default(schema, path):
        result["default"] = _without_empty(schema["default"])
    if "properties" in schema:
        places = {name: f"{path}.{name}".strip(".") for name in schema["properties"]}
        result["properties"] = {
            name: _structural(schema["properties"][name], known, place)
            for name, place in places.items()
            if place not in _SET_ELSEWHERE
        }
    elif schema.get("additionalProperties") is True:
        result["x-kubernetes-preserve-unknown-fields"] = True
    elif "additionalProperties" in schema:
        result["additionalProperties"] = _structural(schema["additionalProperties"], known, "")
    if "items" in schema:
        result["items"] = _structural(schema["items"], known, "")
    if schema.get("type") == "integer":
        result["format"] = "int64"
    return result


def _has_static_default(schema: Schema, path: str) -> bool:
    """Sections have none: a resource shows what a person wrote, and the JobSpec fills in the rest."""
    is_section = "properties" in schema and "." not in path
    return not is_section and schema.get("default") not in (None, {}, [], "")


def _without_empty(value: Any) -> Any:
    return {key: one for key, one in value.items() if one not in ({}, "")} if isinstance(value, dict) else value


KEPT = ("type", "format", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "required")


def _description(path: str, schema: Schema) -> str:
    """In the words of the option of the same place, or of the class."""
    option = options.at(path) if path else None
    return option.help if option else " ".join(str(schema.get("description", "")).split())


def text() -> str:
    """The definition as the file in deploy/crd has it."""
    head = "# Written by `python -m elasticdl.operator.schema`.\n"
    return head + yaml.safe_dump(definition(), sort_keys=False, width=120, allow_unicode=True)


if __name__ == "__main__":
    sys.stdout.write(text())
