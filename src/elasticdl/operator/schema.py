"""The CustomResourceDefinition of ElasticJobs: `python -m elasticdl.operator.schema` prints it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import yaml

from elasticdl import __version__
from elasticdl.operator import validation_rules
from elasticdl.spec import options
from elasticdl.spec.job import JobSpec
from elasticdl.spec.load import QUANTITY_FIELDS

Schema = dict[str, Any]

GROUP, VERSION, PLURAL = "elasticdl.org", "v1", "elasticjobs"

# Places of the JobSpec that are no choice of a person on Kubernetes: the resource's own name and namespace say the
# first two, the pod and its Secret the others. A field that would be ignored is no field.
_SET_ELSEWHERE = (
    "name",
    "cluster.namespace",
    "workers.address",
    *(f"security.{name}" for name in ("tls", "certificate", "key", "ca", "insecure")),
)
_MAX_RESOURCES, _MAX_VOLUMES, _MAX_QUANTITY_LENGTH = 16, 32, 32

_PRINTER_COLUMNS = (
    ("Phase", "string", ".status.phase"),
    ("Workers", "string", ".status.workersText"),
    ("Progress", "string", ".status.progress"),
    ("Metric", "string", ".status.metric"),
    ("Age", "date", ".metadata.creationTimestamp"),
)


def crd_document() -> dict[str, Any]:
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
            "status": STATUS_SCHEMA,
        },
        "x-kubernetes-validations": validation_rules.ROOT_RULES,
    }
    served = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.workers.replicas",
                "statusReplicasPath": ".status.workers.ready",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "description": _column_description(path)}
            for name, kind, path in _PRINTER_COLUMNS
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


def _column_description(path: str) -> str:
    place: Schema = {"properties": {"status": STATUS_SCHEMA}}
    for name in path.strip(".").split("."):
        place = place.get("properties", {}).get(name, {})
    return str(place.get("description", "Since when it is there."))


def spec_schema() -> Schema:
    """The JobSpec as Kubernetes wants schemas: inlined, structural, without what is set elsewhere."""
    document = JobSpec.model_json_schema()
    spec = _structural_schema(document, document["$defs"], "")
    spec["properties"]["suspend"] = {
        "type": "boolean",
        "default": False,
        "description": "The job gives all its pods back and waits; false again: it goes on from its last checkpoint.",
    }
    spec["required"] = ["cluster"]
    properties = spec["properties"]
    counts = properties["workers"]["properties"]  # kubectl scale needs a number to be there
    properties["workers"]["default"] = {name: counts[name]["default"] for name in ("replicas", "min", "max")}
    spec["x-kubernetes-validations"] = validation_rules.SPEC_RULES
    properties["workers"]["x-kubernetes-validations"] = validation_rules.WORKERS_RULES
    properties["ps"]["x-kubernetes-validations"] = validation_rules.PS_RULES
    volumes = properties["cluster"]["properties"]["volumes"]
    volumes["maxItems"] = _MAX_VOLUMES
    volumes["items"]["x-kubernetes-validations"] = validation_rules.VOLUME_RULES
    for role in ("master", "worker", "ps"):
        one = properties["cluster"]["properties"][role]
        one["x-kubernetes-validations"] = validation_rules.ROLE_RULES
        for name in QUANTITY_FIELDS:
            one["properties"][name] |= {
                "additionalProperties": {"x-kubernetes-int-or-string": True, "maxLength": _MAX_QUANTITY_LENGTH},
                "maxProperties": _MAX_RESOURCES,
                "x-kubernetes-validations": validation_rules.RESOURCES_RULES,
            }
    return spec


def _structural_schema(source: Schema, definitions: Mapping[str, Schema], path: str) -> Schema:
    schema = dict(source)
    if "$ref" in schema:
        schema = {**definitions[schema.pop("$ref").rpartition("/")[2]], **schema}
    if "anyOf" in schema:
        (other,) = [one for one in schema.pop("anyOf") if one != {"type": "null"}]
        result = _structural_schema({**schema, **other}, definitions, path)
        return result if result["type"] == "object" or "enum" in result else {**result, "nullable": True}
    result = {key: schema[key] for key in KEPT_KEYWORDS if key in schema}
    if described := _field_description(path, schema):
        result["description"] = described
    if "exclusiveMinimum" in schema:  # a number in JSON Schema, a flag here
        result |= {"minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
    if _has_static_default(schema, path):
        result["default"] = _without_empty(schema["default"])
    if "properties" in schema:
        places = {name: f"{path}.{name}".strip(".") for name in schema["properties"]}
        result["properties"] = {
            name: _structural_schema(schema["properties"][name], definitions, place)
            for name, place in places.items()
            if place not in _SET_ELSEWHERE
        }
    elif schema.get("additionalProperties") is True:
        result["x-kubernetes-preserve-unknown-fields"] = True
    elif "additionalProperties" in schema:
        result["additionalProperties"] = _structural_schema(schema["additionalProperties"], definitions, "")
    if "items" in schema:
        result["items"] = _structural_schema(schema["items"], definitions, "")
    if schema.get("type") == "integer":
        result["format"] = "int64"
    return result


def _has_static_default(schema: Schema, path: str) -> bool:
    """Sections have none: a resource shows what a person wrote, and the JobSpec fills in the rest."""
    is_section = "properties" in schema and "." not in path
    return not is_section and schema.get("default") not in (None, {}, [], "")


def _without_empty(value: Any) -> Any:
    return {key: one for key, one in value.items() if one not in ({}, "")} if isinstance(value, dict) else value


KEPT_KEYWORDS = ("type", "format", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "required")


def _field_description(path: str, schema: Schema) -> str:
    """In the words of the option of the same place, or of the class."""
    option = options.find_option_for(path) if path else None
    return option.help if option else " ".join(str(schema.get("description", "")).split())


def crd_yaml() -> str:
    """The definition as the file in deploy/crd has it."""
    head = "# Written by `python -m elasticdl.operator.schema`.\n"
    return head + yaml.safe_dump(crd_document(), sort_keys=False, width=120, allow_unicode=True)


def _string_schema(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _integer_schema(description: str) -> dict[str, Any]:
    return {"type": "integer", "format": "int64", "description": description}


def _counts_schema(description: str, **fields: str) -> dict[str, Any]:
    properties = {name: _integer_schema(words) for name, words in fields.items()}
    return {"type": "object", "description": description, "properties": properties}


_CONDITION_SCHEMA = {
    "type": "object",
    "required": ["type", "status", "lastTransitionTime", "reason", "message"],
    "properties": {
        "type": _string_schema("Accepted, Followed, Suspended or Finished."),
        "status": _string_schema("True, False or Unknown.", enum=["True", "False", "Unknown"]),
        "observedGeneration": _integer_schema("The generation it was said of."),
        "lastTransitionTime": _string_schema("When the status last changed.", format="date-time"),
        "reason": _string_schema("One word for programs."),
        "message": _string_schema("A sentence for people."),
    },
}

STATUS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "How the job stands: conditions by the operator, the rest by the job's master.",
    "properties": {
        "phase": _string_schema("Invalid, Suspended, Pending, Running, Stopping, Succeeded, Stopped or Failed."),
        "reason": _string_schema("Why it is in this phase."),
        "workers": _counts_schema(
            "Its workers.",
            ready="Those that train.",
            wanted="Those asked for.",
            min="It starts with so many.",
            max="It never has more.",
        ),
        "workersText": _string_schema("Workers that train/wanted (min-max)."),
        "ps": _counts_schema("Its parameter servers.", ready="Those that serve.", wanted="Those asked for."),
        "selector": _string_schema("Selects the pods of its workers."),
        "step": _integer_schema("Steps trained."),
        "total_steps": _integer_schema("Steps of the whole job."),
        "records": _integer_schema("Records trained."),
        "total_records": _integer_schema("Records of the whole job."),
        "progress": _string_schema("How much of the job is done."),
        "metric": _string_schema("The newest metric."),
        "startedAt": _string_schema("When its master first ran.", format="date-time"),
        "finishedAt": _string_schema("When it was over.", format="date-time"),
        "observedGeneration": _integer_schema("The generation of the spec that the operator has seen."),
        "conditions": {
            "type": "array",
            "description": "What the operator has to say.",
            "items": _CONDITION_SCHEMA,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    },
}


if __name__ == "__main__":
    sys.stdout.write(crd_yaml())
