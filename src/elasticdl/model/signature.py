"""The arguments a function takes, read from source or from the living function, and whether they suit a call."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Signature:
    """What may and what must be given. `text` is the list of arguments as a person wrote it."""

    text: str
    positional: tuple[str, ...]  # may be given by position
    positional_required: int  # of them, without a default
    positional_only: int  # of them, cannot be given by name
    keywords: frozenset[str]  # may only be given by name
    keywords_required: frozenset[str]  # of them, without a default
    any_positional: bool  # *args
    any_keyword: bool  # **kwargs

    def names(self, after: int = 0) -> frozenset[str]:
        """What may be given by name when the first `after` arguments are given by position."""
        return frozenset(self.positional[max(after, self.positional_only) :]) | self.keywords

    def call_problem(self, arguments: int, keywords: Collection[str] = ()) -> str | None:
        """Why a call with so many arguments by position and these by name would fail; None if it would not."""
        if arguments > len(self.positional) and not self.any_positional:
            return f"takes {len(self.positional)} of the {arguments} arguments"
        needed = set(self.positional[arguments : self.positional_required]) | self.keywords_required
        if missing := sorted(needed - set(keywords)):
            return f"also requires {', '.join(missing)}"
        unknown = sorted(set(keywords) - self.names(arguments))
        if unknown and not self.any_keyword:
            return f"does not take {', '.join(unknown)}"
        return None


def from_source(arguments: ast.arguments, *, is_method: bool = False) -> Signature:
    """The signature of a `def`; `is_method` leaves out self."""
    skip = 1 if is_method else 0
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][skip:]
    keywords = [argument.arg for argument in arguments.kwonlyargs]
    without_default = {
        argument.arg
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    }
    return Signature(
        text=_without_self(ast.unparse(arguments)) if is_method else ast.unparse(arguments),
        positional=tuple(positional),
        positional_required=max(0, len(positional) - len(arguments.defaults)),
        positional_only=max(0, len(arguments.posonlyargs) - skip),
        keywords=frozenset(keywords),
        keywords_required=frozenset(without_default),
        any_positional=arguments.vararg is not None,
        any_keyword=arguments.kwarg is not None,
    )


def from_callable(function: Callable[..., Any]) -> Signature | None:
    """The signature of a living function or class; None where Python cannot tell."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    parameters = found.parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    kinds = {p.kind for p in parameters}
    return Signature(
        text=str(found.replace(return_annotation=found.empty))[1:-1],
        positional=tuple(p.name for p in positional),
        positional_required=sum(p.default is p.empty for p in positional),
        positional_only=sum(p.kind is p.POSITIONAL_ONLY for p in positional),
        keywords=frozenset(p.name for p in keywords),
        keywords_required=frozenset(p.name for p in keywords if p.default is p.empty),
        any_positional=inspect.Parameter.VAR_POSITIONAL in kinds,
        any_keyword=inspect.Parameter.VAR_KEYWORD in kinds,
    )


def _without_self(text: str) -> str:
    return text.partition(",")[2].removeprefix(" /,").strip()
