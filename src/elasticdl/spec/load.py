"""A job description as text or mapping becomes a JobSpec, or one error that lists all that is wrong.

Each complaint names the place by its dotted path (and option), what was expected, what came,
and where possible the fix.
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
from elasticdl.spec.text import parse_yaml

Document = dict[str, Any]

# Places that hold paths: relative ones are meant from where they were written.
_PATHS = (
    "model.zoo",
    "script.path",
    "data.training",
    "data.validation",
    "data.prediction",
    "checkpoint.directory",
    "checkpoint.initial",
    "output",
    "security.certificate",
    "security.key",
    "security.authority",
)


def load_file(path: Path) -> Document:
    """The job in a YAML file; its relative paths are made absolute from the file's directory.

    Those of a job on a cluster stay: they are meant inside the image, from its working directory.
    """
    document = read_file(path)
    return document if document.get("cluster") else anchor(document, path.absolute().parent)


def read_file(path: Path, what: str = "job file", example: str = "name: my-job") -> Document:
    """The mapping in a YAML file, as it stands there."""
    try:
        text = path.read_text()
    except FileNotFoundError as exc:
        raise SpecError(f"{path}: no such {what}") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise SpecError(f"{path}: cannot be read as text: {exc}") from exc
    document = parse_yaml(text, str(path))
    if not isinstance(document, dict):
        received = "nothing" if document is None else type(document).__name__
        raise SpecError(f"{path}: expected a mapping such as '{example}'; received {received}")
    return document


def anchor(document: Mapping[str, Any], directory: Path) -> Document:
    """The document with its relative paths joined to `directory`; URLs and datasets by name stay."""
    result = deepcopy(dict(document))
    for path in _PATHS:
        *parents, leaf = path.split(".")
        place: Any = result
        for parent in parents:
            place = place.get(parent) if isinstance(place, dict) else None
        value = place.get(leaf) if isinstance(place, dict) else None
        if not isinstance(value, str) or not value:
            continue
        if not path.startswith("data."):
            place[leaf] = _anchored(value, directory)
        elif place.get("format") != "python":
            # Data may be several paths with commas between, unless a file is really called so.
            is_one = ("://" in value and "?" in value) or os.path.exists(
                directory / value
            )  # a table has commas of its own
            parts = [value] if is_one else value.split(",")
            place[leaf] = ",".join(_anchored(part.strip(), directory) for part in parts)
    return result


def _anchored(path: str, directory: Path) -> str:
    if "\0" in path:
        raise SpecError(f"{path!r}: no path has the character NUL in it")
    return path if not path or "://" in path else os.path.normpath(directory / os.path.expanduser(path))


def merge(*layers: Mapping[str, Any]) -> Document:
    """One document of several; where two say something of the same place, the later one counts."""
    result: Document = {}
    for layer in layers:
        for key, value in layer.items():
            old = result.get(key)
            result[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else deepcopy(value)
    return result


def resolve(document: Mapping[str, Any], where: str = "") -> JobSpec:
    """The validated job with every default filled in. `where` names a file for the message."""
    try:
        return JobSpec.model_validate(dict(document))
    except ValidationError as exc:
        complaints = list(dict.fromkeys(_all_complaints(document, exc.errors())))
    prefix = f"{where}: " if where else ""
    if len(complaints) == 1:
        raise SpecError(prefix + complaints[0])
    lines = "".join(f"\n  {complaint}" for complaint in complaints)
    raise SpecError(f"{prefix}{len(complaints)} things are wrong with this job:{lines}")


def _all_complaints(document: Mapping[str, Any], errors: Sequence[ErrorDetails]) -> Iterator[str]:
    """First what is wrong with single values, then, without those, what does not fit together."""
    remaining = deepcopy(dict(document))
    refused: set[str] = set()
    while errors:
        progress = False
        for error in errors:
            section = str(error["loc"][0]) if error["loc"] else _strip(error["msg"]).partition(":")[0].partition(".")[0]
            # A plan is judged against the workers: with those refused, a complaint would mislead.
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


def _prune(document: Document, location: Sequence[int | str]) -> bool:
    """Take the refused value out; False if it was not there."""
    place: Any = document
    for key in location[:-1]:
        if not isinstance(place, dict) or key not in place:
            return False
        # A wrong item spoils its whole list.
        if isinstance(place[key], list | tuple):
            return place.pop(key) is not None
        place = place[key]
    return isinstance(place, dict) and place.pop(location[-1], _ABSENT) is not _ABSENT


_ABSENT = object()


def _complaint(error: ErrorDetails) -> str:
    path = ".".join(str(part) for part in error["loc"])
    kind, received = error["type"], error["input"]
    if not error["loc"]:
        return _strip(error["msg"])
    if kind == "extra_forbidden":
        return f"{path}: unknown key; {_suggestion(error['loc'])}"
    option = options.at(path)
    place = f"{path} ({option.flag})" if option else path
    if kind == "missing":
        return f"{place}: is missing and has no default"
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
    wanted = f"expected {expected}" if expected else _strip(error["msg"])
    return f"{place}: {wanted}; received {received!r}" if not isinstance(received, dict) else f"{place}: {wanted}"


def _strip(message: str) -> str:
    return message.removeprefix("Value error, ")


def _suggestion(location: Sequence[int | str]) -> str:
    """What the person may have meant by a key that does not exist."""
    *parents, key = (str(part) for part in location)
    model = _model_at(parents)
    known = list(model.model_fields) if model else []
    near = get_close_matches(key.replace("-", "_"), known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    option = options.named(key)
    if option:
        return f"did you mean {option.path!r}?"
    elsewhere = [option.path for option in options.OPTIONS if option.path.rpartition(".")[2] == key]
    if elsewhere:
        return f"did you mean {elsewhere[0]!r}?"
    far = get_close_matches(key.replace("-", "_"), [option.name for option in options.OPTIONS], n=1, cutoff=0.75)
    option = options.named(far[0]) if far else None
    return f"did you mean {option.path!r}?" if option else f"known here: {', '.join(known)}"


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
