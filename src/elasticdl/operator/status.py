"""What the status of an ElasticJob holds, and what of it the operator says."""

from __future__ import annotations

from typing import Any


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _number(description: str) -> dict[str, Any]:
    return {"type": "integer", "format": "int64", "description": description}


def _counts(description: str, **fields: str) -> dict[str, Any]:
    properties = {name: _number(words) for name, words in fields.items()}
    return {"type": "object", "description": description, "properties": properties}


_CONDITION = {
    "type": "object",
    "required": ["type", "status", "lastTransitionTime", "reason", "message"],
    "properties": {
        "type": _text("Accepted, Followed, Suspended or Finished."),
        "status": _text("True, False or Unknown.", enum=["True", "False", "Unknown"]),
        "observedGeneration": _number("The generation it was said of."),
        "lastTransitionTime": _text("When the status last changed.", format="date-time"),
        "reason": _text("One word for programs."),
        "message": _text("A sentence for people."),
    },
}

STATUS: dict[str, Any] = {
    "type": "object",
    "description": "How the job stands: conditions by the operator, the rest by the job's master.",
    "properties": {
        "phase": _text("Invalid, Suspended, Pending, Running, Stopping, Succeeded, Stopped or Failed."),
        "reason": _text("Why it is in this phase."),
        "workers": _counts(
            "Its workers.",
            ready="Those that train.",
            wanted="Those asked for.",
            min="It starts with so many.",
            max="It never has more.",
        ),
        "workersText": _text("Workers that train/wanted (min-max)."),
        "ps": _counts("Its parameter servers.", ready="Those that serve.", wanted="Those asked for."),
        "selector": _text("Selects the pods of its workers."),
        "step": _number("Steps trained."),
        "total_steps": _number("Steps of the whole job."),
        "records": _number("Records trained."),
        "total_records": _number("Records of the whole job."),
        "progress": _text("How much of the job is done."),
        "metric": _text("The newest metric."),
        "startedAt": _text("When its master first ran.", format="date-time"),
        "finishedAt": _text("When it was over.", format="date-time"),
        "observedGeneration": _number("The generation of the spec that the operator has seen."),
        "conditions": {
            "type": "array",
            "description": "What the operator has to say.",
            "items": _CONDITION,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    },
}
