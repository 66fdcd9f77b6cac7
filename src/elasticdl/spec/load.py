"""Turns a job description into a JobSpec, or raises one error that lists everything wrong with it.

The description is YAML, a mapping or an ElasticJob resource. Each complaint names the field by its dotted path (and the
option), what was expected, what was received and, where possible, the fix.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from elasticdl.errors import SpecError
from elasticdl.spec import options
from elasticdl.spec.job import JobSpec
from elasticdl.spec.parsing import parse_yaml

JobDocument = dict[str, Any]

# Fields that hold paths: relative paths start from the directory of the file they are in.
_PATH_FIELDS = (
    "model.zoo",
    "script.path",
    "data.training",
    "data.validation",
    "data.prediction",
    "checkpoint.directory",
    "checkpoint.init_from",
    "output",
    "security.certificate",
    "security.key",
    "security.ca",
)


def read_yaml_file(path: Path, description: str = "job file", example: str = "name: my-job") -> JobDocument:
    """Reads the mapping in a YAML file."""
    try:
        text = path.read_text()
    except FileNotFoundError as exc:
        raise SpecError(f"{path}: no such {description}") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise SpecError(f"{path}: cannot be read as text: {exc}") from exc
    document = parse_yaml(text, str(path))
    if not isinstance(document, dict):
        received = "nothing" if document is None else type(document).__name__
        raise SpecError(f"{path}: expected a mapping such as '{example}'; received {received}")
    return document


def make_paths_absolute(document: Mapping[str, Any], directory: Path) -> JobDocument:
    """Joins relative paths of a document to `directory`; URLs and names of datasets stay."""
    result = deepcopy(dict(document))
    for path in _PATH_FIELDS:
        *parents, leaf = path.split(".")
        section: Any = result
        for parent in parents:
            section = section.get(parent) if isinstance(section, dict) else None
        value = section.get(leaf) if isinstance(section, dict) else None
        if not isinstance(value, str) or not value:
            continue
        if not path.startswith("data."):
            section[leaf] = _absolute_path(value, directory)
        elif section.get("format") != "python":
            # Commas separate several paths, unless they are in the name of a file or the URL of a table.
            is_single_path = ("://" in value and "?" in value) or os.path.exists(directory / value)
            parts = [value] if is_single_path else value.split(",")
            section[leaf] = ",".join(_absolute_path(part.strip(), directory) for part in parts)
    return result


def _absolute_path(path: str, directory: Path) -> str:
    if "\0" in path:
        raise SpecError(f"{path!r}: a path cannot contain the character NUL")
    return path if not path or "://" in path else os.path.normpath(directory / os.path.expanduser(path))


def merge_documents(*layers: Mapping[str, Any]) -> JobDocument:
    """Merges documents; later ones override earlier ones."""
    result: JobDocument = {}
    for layer in layers:
        for key, value in layer.items():
            old = result.get(key)
            result[key] = (
                merge_documents(old, value) if isinstance(old, dict) and isinstance(value, dict) else deepcopy(value)
            )
    return result


def resolve_job(document: Mapping[str, Any], source: str = "") -> JobSpec:
    """Validates a document and fills in every default. `source` names the file in error messages."""
    try:
        return JobSpec.model_validate(dict(document))
    except ValidationError as exc:
        complaints = list(dict.fromkeys(_all_complaints(document, exc.errors())))
    prefix = f"{source}: " if source else ""
    if len(complaints) == 1:
        raise SpecError(prefix + complaints[0])
    lines = "".join(f"\n  {complaint}" for complaint in complaints)
    raise SpecError(f"{prefix}this job has {len(complaints)} errors:{lines}")


def _all_complaints(document: Mapping[str, Any], errors: Sequence[ErrorDetails]) -> Iterator[str]:
    """Yields the errors of single values; then, without those values, the errors of their combinations."""
    remaining = deepcopy(dict(document))
    refused: set[str] = set()
    while errors:
        progress = False
        for error in errors:
            section = (
                str(error["loc"][0])
                if error["loc"]
                else _strip_prefix(error["msg"]).partition(":")[0].partition(".")[0]
            )
            # A plan is checked against the workers: if those are wrong, its error would be misleading.
            is_echo = not error["loc"] and refused & ({"workers", "plan"} if section == "plan" else {section})
            if not is_echo:
                yield _complaint(error)
            refused.add(section)
            progress |= _prune(remaining, error["loc"] or (section,))
        if not progress:
            return
        try:
            JobSpec.model_validate(remaining)
            return
        except ValidationError as exc:
            errors = [error for error in exc.errors() if not error["loc"]]


def _prune(document: JobDocument, location: Sequence[int | str]) -> bool:
    """Removes a refused value; returns False if it was not there."""
    parent: Any = document
    for key in location[:-1]:
        if not isinstance(parent, dict) or key not in parent:
            return False
        # A wrong item makes its list wrong.
        if isinstance(parent[key], list | tuple):
            return parent.pop(key) is not None
        parent = parent[key]
    return isinstance(parent, dict) and parent.pop(location[-1], _ABSENT) is not _ABSENT


_ABSENT = object()


def _complaint(error: ErrorDetails) -> str:
    path = ".".join(str(part) for part in error["loc"])
    kind, received = error["type"], error["input"]
    if not error["loc"]:
        return _strip_prefix(error["msg"])
    if kind == "extra_forbidden":
        return f"{path}: unknown key; {_suggestion(error['loc'])}"
    option = options.find_option_for(path)
    field = f"{path} ({option.flag})" if option else path
    if kind == "missing":
        return f"{field}: is missing and has no default"
    context = error.get("ctx", {})
    expected = {
        "int_parsing": "a whole number",
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_parsing": "a number",
        "float_type": "a number",
        "bool_parsing": "true or false",
        "bool_type": "true or false",
        "string_type": "text (quote it)",
        "dict_type": "a mapping",
        "tuple_type": "a list",
        "model_type": "a mapping",
        "greater_than_equal": f"at least {context.get('ge')}",
        "greater_than": f"more than {context.get('gt')}",
        "less_than_equal": f"at most {context.get('le')}",
        "literal_error": f"one of {context.get('expected')}",
        "enum": f"one of {context.get('expected')}",
    }.get(kind)
    expectation = f"expected {expected}" if expected else _strip_prefix(error["msg"])
    return (
        f"{field}: {expectation}; received {received!r}"
        if not isinstance(received, dict)
        else f"{field}: {expectation}"
    )


def _strip_prefix(message: str) -> str:
    return message.removeprefix("Value error, ")


def _suggestion(location: Sequence[int | str]) -> str:
    """Suggests what the user may have meant by an unknown key."""
    *parents, key = (str(part) for part in location)
    model = _model_at(parents)
    fields = list(model.model_fields) if model else []
    matches = get_close_matches(key.replace("-", "_"), fields, n=1)
    if matches:
        return f"did you mean {matches[0]!r}?"
    option = options.find_option(key)
    if option:
        return f"did you mean {option.path!r}?"
    elsewhere = [option.path for option in options.OPTIONS if option.path.rpartition(".")[2] == key]
    if elsewhere:
        return f"did you mean {elsewhere[0]!r}?"
    names = [option.name for option in options.OPTIONS]
    matches = get_close_matches(key.replace("-", "_"), names, n=1, cutoff=0.75)
    option = options.find_option(matches[0]) if matches else None
    return f"did you mean {option.path!r}?" if option else f"expected one of {', '.join(fields)}"


def _model_at(parents: Sequence[str]) -> type[BaseModel] | None:
    model: type[BaseModel] = JobSpec
    for name in parents:
        if name.isdecimal():  # an item of a list of this model
            continue
        field = model.model_fields.get(name)
        if field is None:
            return None
        candidates = [field.annotation, *get_args(field.annotation)]
        models = [item for item in candidates if isinstance(item, type) and issubclass(item, BaseModel)]
        if not models:
            return None
        model = models[0]
    return model


QUANTITY_FIELDS = ("requests", "limits")


def resolve_elastic_job(resource: Mapping[str, Any]) -> JobSpec:
    """Resolves the job of an ElasticJob. SpecErrors name fields as in the resource's spec."""
    metadata = resource["metadata"]
    document = deepcopy(dict(resource.get("spec") or {}))
    document.pop("suspend", None)
    cluster = document.get("cluster")
    if isinstance(cluster, dict):
        document["cluster"] = {**cluster, "namespace": metadata.get("namespace", "default")}
        for role in ("master", "worker", "ps"):
            _quantities_to_text(cluster.get(role))
    else:
        document["cluster"] = {}  # an ElasticJob always runs on a cluster, so that validation requires cluster.image
    return resolve_job({**document, "name": metadata["name"]}, f"ElasticJob {metadata['name']}")


def _quantities_to_text(role: object) -> None:
    """Converts integers such as `cpu: 1` to text, as quantities are."""
    for name in QUANTITY_FIELDS:
        amounts = role.get(name) if isinstance(role, dict) else None
        if isinstance(amounts, dict):
            amounts.update({key: str(value) for key, value in amounts.items() if type(value) is int})
