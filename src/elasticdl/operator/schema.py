"""The CustomResourceDefinition of ElasticJobs: `python -m elasticdl.operator.schema` prints it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import yaml

from elasticdl import __version__
from elasticdl.operator import validation_rules
from elasticdl.operator.field_descriptions import DESCRIPTIONS
from elasticdl.spec.job import JobSpec
from elasticdl.spec.load import QUANTITY_FIELDS

Schema = dict[str, Any]

GROUP, VERSION, PLURAL = "elasticdl.org", "v1", "elasticjobs"

# Fields of the JobSpec that a user of Kubernetes cannot choose: the resource's metadata has its name and namespace; the
# pods and the Secret of the job determine the others. A field that would be ignored is not in the schema.
_FIELDS_SET_ELSEWHERE = (
    "name",
    "cluster.namespace",
    "workers.address",
    "workers.start_method",
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
    field: Schema = {"properties": {"status": STATUS_SCHEMA}}
    for name in path.strip(".").split("."):
        field = field.get("properties", {}).get(name, {})
    return str(field.get("description", "Time since the resource was created."))


def spec_schema() -> Schema:
    """The JobSpec as a structural schema of Kubernetes: references inlined, without fields that are set elsewhere."""
    document = JobSpec.model_json_schema()
    spec = _structural_schema(document, document["$defs"], "")
    spec["properties"]["suspend"] = {
        "type": "boolean",
        "default": False,
        "description": DESCRIPTIONS["suspend"],
    }
    spec["required"] = ["cluster"]
    properties = spec["properties"]
    worker_fields = properties["workers"]["properties"]  # `kubectl scale` needs workers.replicas in every resource
    properties["workers"]["default"] = {name: worker_fields[name]["default"] for name in ("replicas", "min", "max")}
    spec["x-kubernetes-validations"] = validation_rules.SPEC_RULES
    properties["workers"]["x-kubernetes-validations"] = validation_rules.WORKERS_RULES
    properties["ps"]["x-kubernetes-validations"] = validation_rules.PS_RULES
    volumes = properties["cluster"]["properties"]["volumes"]
    volumes["maxItems"] = _MAX_VOLUMES
    volumes["items"]["x-kubernetes-validations"] = validation_rules.VOLUME_RULES
    for role in ("master", "worker", "ps"):
        role_schema = properties["cluster"]["properties"][role]
        role_schema["x-kubernetes-validations"] = validation_rules.ROLE_RULES
        for name in QUANTITY_FIELDS:
            role_schema["properties"][name] |= {
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
        (non_null,) = [alternative for alternative in schema.pop("anyOf") if alternative != {"type": "null"}]
        result = _structural_schema({**schema, **non_null}, definitions, path)
        return result if result["type"] == "object" or "enum" in result else {**result, "nullable": True}
    result = {key: schema[key] for key in KEPT_KEYWORDS if key in schema}
    if path in DESCRIPTIONS:
        result["description"] = DESCRIPTIONS[path]
    if "exclusiveMinimum" in schema:  # a number in JSON Schema, a flag here
        result |= {"minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
    if _has_static_default(schema, path):
        result["default"] = _without_empty(schema["default"])
    if "properties" in schema:
        path_of = {name: f"{path}.{name}".strip(".") for name in schema["properties"]}
        result["properties"] = {
            name: _structural_schema(schema["properties"][name], definitions, path_of[name])
            for name in schema["properties"]
            if path_of[name] not in _FIELDS_SET_ELSEWHERE
        }
    elif schema.get("additionalProperties") is True:
        result["x-kubernetes-preserve-unknown-fields"] = True
    elif "additionalProperties" in schema:
        result["additionalProperties"] = _structural_schema(
            schema["additionalProperties"], definitions, f"{path}.values"
        )
    if "items" in schema:
        result["items"] = _structural_schema(schema["items"], definitions, f"{path}.items")
    if schema.get("type") == "integer":
        result["format"] = "int64"
    return result


def _has_static_default(schema: Schema, path: str) -> bool:
    """Sections have no default: a resource shows what the user wrote, and the JobSpec fills in the rest."""
    is_section = "properties" in schema and "." not in path
    return not is_section and schema.get("default") not in (None, {}, [], "")


def _without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: field for name, field in value.items() if field not in ({}, "")}


KEPT_KEYWORDS = ("type", "format", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "required")


def crd_yaml() -> str:
    """The text of deploy/crd/elasticjobs.yaml."""
    header = "# Written by `python -m elasticdl.operator.schema`.\n"
    return header + yaml.safe_dump(crd_document(), sort_keys=False, width=120, allow_unicode=True)


def _string_schema(description: str, **keywords: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **keywords}


def _integer_schema(description: str) -> dict[str, Any]:
    return {"type": "integer", "format": "int64", "description": description}


def _counts_schema(description: str, **descriptions: str) -> dict[str, Any]:
    properties = {name: _integer_schema(text) for name, text in descriptions.items()}
    return {"type": "object", "description": description, "properties": properties}


_CONDITION_SCHEMA = {
    "type": "object",
    "required": ["type", "status", "lastTransitionTime", "reason", "message"],
    "properties": {
        "type": _string_schema("Accepted, SpecApplied, Suspended or Finished."),
        "status": _string_schema("True, False or Unknown.", enum=["True", "False", "Unknown"]),
        "observedGeneration": _integer_schema("Generation of the spec that the condition describes."),
        "lastTransitionTime": _string_schema("Time at which the status last changed.", format="date-time"),
        "reason": _string_schema("Reason for the status, as one word for programs."),
        "message": _string_schema("Reason for the status, as a sentence for users."),
    },
}

STATUS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "Observed state of the job. The operator writes the conditions, the master the rest.",
    "properties": {
        "phase": _string_schema(
            "Phase of the job: Invalid, Suspended, Pending, Running, Stopping, Succeeded, Stopped or Failed."
        ),
        "reason": _string_schema("Why the job is in this phase."),
        "workers": _counts_schema(
            "Number of workers.",
            ready="Workers that train.",
            desired="Desired number of workers.",
            min="Minimum number of workers.",
            max="Maximum number of workers.",
        ),
        "workersText": _string_schema("Workers as ready/desired (min-max)."),
        "ps": _counts_schema(
            "Number of parameter servers.",
            ready="Parameter servers that hold rows.",
            desired="Desired number of parameter servers.",
        ),
        "selector": _string_schema("Label selector of the worker pods."),
        "step": _integer_schema("Number of steps trained."),
        "totalSteps": _integer_schema("Number of steps of the whole job."),
        "records": _integer_schema("Number of records trained."),
        "totalRecords": _integer_schema("Number of records of the whole job."),
        "progress": _string_schema("Share of the job that is done, in percent."),
        "metric": _string_schema("Newest value of the model's first metric, or of the loss."),
        "startedAt": _string_schema("Time at which the job's first master started.", format="date-time"),
        "finishedAt": _string_schema("Time at which the job ended.", format="date-time"),
        "observedGeneration": _integer_schema("Newest generation of the spec that the operator has handled."),
        "conditions": {
            "type": "array",
            "description": "Conditions of the job: Accepted, SpecApplied, Suspended and Finished.",
            "items": _CONDITION_SCHEMA,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    },
}


if __name__ == "__main__":
    sys.stdout.write(crd_yaml())
