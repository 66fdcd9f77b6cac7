"""Reads Python source without running it: names, the signatures of functions, and whether these suit a call."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from elasticdl.errors import ModelError

MODULE_NAMES = {"Module", "nn.Module", "torch.nn.Module"}


_KERAS_MODULES = {"tensorflow", "keras", "elasticdl.keras"}


class Framework(StrEnum):
    """The framework that a model file is written in."""

    TORCH = "torch"
    KERAS = "keras"


@dataclass(frozen=True, slots=True)
class NameBinding:
    """A name at the top level of the file; `signature` is None if the source does not show it."""

    line: int
    signature: Signature | None
    node: ast.stmt


def parse_source(file: Path) -> ast.Module:
    """The syntax tree of a file; a ModelError shows the line and column of a mistake."""
    try:
        return ast.parse(file.read_bytes(), filename=str(file))
    except SyntaxError as exc:
        line = (exc.text or "").rstrip("\n")
        caret = " " * ((exc.offset or 1) - 1) + "^"
        raise ModelError(f"{file}, line {exc.lineno}: {exc.msg}\n    {line}\n    {caret}") from exc
    except (OSError, ValueError) as exc:
        raise ModelError(f"{file} cannot be read as Python source: {exc}") from exc


def find_bindings(tree: ast.Module) -> tuple[dict[str, NameBinding], bool]:
    """The last binding of each name at the top level, and whether there can be no other names."""
    bindings: dict[str, NameBinding] = {}
    is_complete = True
    for node in _iterate_statements(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            plain = None if node.decorator_list else signature_from_source(node.args)
            bindings[node.name] = NameBinding(node.lineno, plain, node)
        elif isinstance(node, ast.ClassDef):
            bindings[node.name] = NameBinding(node.lineno, _class_signature(node), node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.asname or alias.name.partition(".")[0] for alias in node.names]
            is_complete = is_complete and "*" not in names
            bindings |= {name: NameBinding(node.lineno, None, node) for name in names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if node.value else []
            for target in targets:
                names = [child.id for child in ast.walk(target) if isinstance(child, ast.Name)]
                bindings |= {name: NameBinding(node.lineno, None, node) for name in names}
    return bindings, is_complete


def find_returned_values(function: ast.stmt) -> Iterator[ast.expr]:
    """The expressions that a plain function returns, without those of functions inside of it."""
    if isinstance(function, ast.FunctionDef) and not function.decorator_list:
        for statement in _iterate_statements(function.body):
            if isinstance(statement, ast.Return) and statement.value is not None:
                yield statement.value


def detect_framework(tree: ast.Module) -> Framework:
    """Keras if the file imports TensorFlow or Keras anywhere, else torch."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    is_keras = any(name == module or name.startswith(f"{module}.") for name in names for module in _KERAS_MODULES)
    return Framework.KERAS if is_keras else Framework.TORCH


def _iterate_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Top-level statements, also those under if, try, with and for."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.Try):
            handlers = [statement for handler in getattr(node, "handlers", []) for statement in handler.body]
            yield from _iterate_statements(
                [*node.body, *handlers, *getattr(node, "orelse", []), *getattr(node, "finalbody", [])]
            )


def _class_signature(node: ast.ClassDef) -> Signature | None:
    if node.decorator_list or node.keywords:
        return None
    for child in node.body:
        if isinstance(child, ast.FunctionDef) and child.name == "__init__":
            return signature_from_source(child.args, is_method=True)
    if all(ast.unparse(parent) in MODULE_NAMES for parent in node.bases):
        return Signature("", (), 0, 0, frozenset(), frozenset(), False, False)
    return None


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments that a function may and must get. `text` is the list of arguments as it was written."""

    text: str
    positional: tuple[str, ...]  # may be passed by position
    positional_required: int  # of them, without a default
    positional_only: int  # of them, cannot be passed by name
    keywords: frozenset[str]  # may only be passed by name
    keywords_required: frozenset[str]  # of them, without a default
    any_positional: bool  # *args
    any_keyword: bool  # **kwargs

    def names(self, after: int = 0) -> frozenset[str]:
        """The names that may be passed as keywords after `after` arguments by position."""
        return frozenset(self.positional[max(after, self.positional_only) :]) | self.keywords

    def call_problem(self, arguments: int, keywords: Collection[str] = ()) -> str | None:
        """Why a call with this number of positional and these named arguments would fail; None if it would not."""
        if arguments > len(self.positional) and not self.any_positional:
            return f"takes {len(self.positional)} of the {arguments} arguments"
        needed = set(self.positional[arguments : self.positional_required]) | self.keywords_required
        if missing := sorted(needed - set(keywords)):
            return f"also requires {', '.join(missing)}"
        unknown = sorted(set(keywords) - self.names(arguments))
        if unknown and not self.any_keyword:
            return f"does not take {', '.join(unknown)}"
        return None


def signature_from_source(arguments: ast.arguments, *, is_method: bool = False) -> Signature:
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


def signature_from_callable(function: Callable[..., Any]) -> Signature | None:
    """The signature of a function or class; None if Python does not know it."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    parameters = signature.parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    kinds = {p.kind for p in parameters}
    return Signature(
        text=str(signature.replace(return_annotation=signature.empty))[1:-1],
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
