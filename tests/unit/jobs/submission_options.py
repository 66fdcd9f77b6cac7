"""Writes `elasticdl/jobs/submission_options.py` from the table of options and the types of the fields they set.

python -m tests.unit.jobs.submission_options > src/elasticdl/jobs/submission_options.py
"""

from __future__ import annotations

import enum
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from elasticdl.spec import JobSpec, load, options
from elasticdl.spec.option import Option, OptionSyntax

HEADER = '''"""The options of `elasticdl.submit`, with their types; written by tests/unit/jobs/submission_options.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TypedDict


class SubmissionOptions(TypedDict, total=False):
    """Options of the command line by name, without the dashes. An option that is not given, or None, says nothing."""

'''
# Options of the command line that are not in the table.
OTHERS = {
    "distribution_strategy": "str | None",
    "workers": "int | str | None",  # of a script
    "script": "str | PathLike[str] | None",
    "arguments": "Sequence[str] | None",  # of the script
}
PARAMETERS = frozenset({"queue"})  # parameters of `submit` itself
TYPES_OF_SYNTAX = {
    OptionSyntax.SWITCH: "bool | None",
    OptionSyntax.LIST: "Sequence[str] | str | None",
    OptionSyntax.MAPPING: "Mapping[str, Any] | str | None",
    OptionSyntax.PAIRS: "Mapping[str, Any] | Mapping[int, int] | str | None",
    OptionSyntax.VOLUMES: "Sequence[Mapping[str, str]] | str | None",
    OptionSyntax.FILE: "Mapping[str, Any] | str | PathLike[str] | None",
}


def option_type(option: Option) -> str:
    """The annotation of an option in the generated class."""
    if option.syntax in TYPES_OF_SYNTAX:
        return TYPES_OF_SYNTAX[option.syntax]
    if option.path in load._PATH_FIELDS:
        return "str | PathLike[str] | None"
    names = sorted(_type_names(_field_annotation(option.path)), reverse=True)
    return " | ".join([*names, "None"])


def render() -> str:
    """The text of the generated module."""
    fields = {option.name: option_type(option) for option in options.OPTIONS if option.name not in PARAMETERS}
    return HEADER + "".join(f"    {name}: {type_name}\n" for name, type_name in (fields | OTHERS).items())


def _field_annotation(path: str) -> Any:
    *sections, leaf = path.split(".")
    model: type[BaseModel] = JobSpec
    for name in sections:
        annotation = model.model_fields[name].annotation
        model = next(
            part
            for part in (annotation, *get_args(annotation))
            if isinstance(part, type) and issubclass(part, BaseModel)
        )
    return model.model_fields[leaf].annotation


def _type_names(annotation: Any) -> set[str]:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _type_names(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return {name for part in get_args(annotation) if part is not type(None) for name in _type_names(part)}
    if origin is Literal or (isinstance(annotation, type) and issubclass(annotation, enum.Enum)):
        return {"str"}
    if origin is dict:
        return {"Mapping[Any, Any]", "str"}
    if origin in (tuple, list):
        return {"Sequence[Any]", "str"}
    assert annotation in (int, float, bool, str), annotation
    return {annotation.__name__}


if __name__ == "__main__":
    print(render(), end="")
