"""What the source of a file says without running it: the names at its top level and the arguments they take."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from elasticdl.errors import ModelError
from elasticdl.model import signature
from elasticdl.model.signature import Signature

MODULE_NAMES = {"Module", "nn.Module", "torch.nn.Module"}


_KERAS = {"tensorflow", "keras", "elasticdl.keras"}


class Framework(StrEnum):
    """What a model file is written in."""

    TORCH = "torch"
    KERAS = "keras"


@dataclass(frozen=True, slots=True)
class Bound:
    """A name at the top level of the file; `signature` is None where the source cannot tell it."""

    line: int
    signature: Signature | None
    node: ast.stmt


def parse(file: Path) -> ast.Module:
    """The syntax tree; ModelError shows line and column of a mistake."""
    try:
        return ast.parse(file.read_bytes(), filename=str(file))
    except SyntaxError as exc:
        line = (exc.text or "").rstrip("\n")
        caret = " " * ((exc.offset or 1) - 1) + "^"
        raise ModelError(f"{file}, line {exc.lineno}: {exc.msg}\n    {line}\n    {caret}") from exc
    except (OSError, ValueError) as exc:
        raise ModelError(f"{file} cannot be read as Python source: {exc}") from exc


def bindings(tree: ast.Module) -> tuple[dict[str, Bound], bool]:
    """Names bound at the top level, the last binding of each, and whether these are all there can be."""
    bound: dict[str, Bound] = {}
    is_complete = True
    for node in _statements(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            plain = None if node.decorator_list else signature.from_source(node.args)
            bound[node.name] = Bound(node.lineno, plain, node)
        elif isinstance(node, ast.ClassDef):
            bound[node.name] = Bound(node.lineno, _class_signature(node), node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.asname or alias.name.partition(".")[0] for alias in node.names]
            is_complete = is_complete and "*" not in names
            bound |= {name: Bound(node.lineno, None, node) for name in names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if node.value else []
            for target in targets:
                names = [child.id for child in ast.walk(target) if isinstance(child, ast.Name)]
                bound |= {name: Bound(node.lineno, None, node) for name in names}
    return bound, is_complete


def returned(function: ast.stmt) -> Iterator[ast.expr]:
    """What a plain function returns, as it is written there; not what functions inside of it return."""
    if isinstance(function, ast.FunctionDef) and not function.decorator_list:
        for statement in _statements(function.body):
            if isinstance(statement, ast.Return) and statement.value is not None:
                yield statement.value


def framework(tree: ast.Module) -> Framework:
    """By what the file imports: Keras where TensorFlow or Keras is among it, anywhere in the file."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    found = any(name == known or name.startswith(f"{known}.") for name in names for known in _KERAS)
    return Framework.KERAS if found else Framework.TORCH


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Top-level statements, also those under if, try, with and for."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.Try):
            handlers = [statement for handler in getattr(node, "handlers", []) for statement in handler.body]
            yield from _statements(
                [*node.body, *handlers, *getattr(node, "orelse", []), *getattr(node, "finalbody", [])]
            )


def _class_signature(node: ast.ClassDef) -> Signature | None:
    if node.decorator_list or node.keywords:
        return None
    for child in node.body:
        if isinstance(child, ast.FunctionDef) and child.name == "__init__":
            return signature.from_source(child.args, is_method=True)
    if all(ast.unparse(parent) in MODULE_NAMES for parent in node.bases):
        return Signature("", (), 0, 0, frozenset(), frozenset(), False, False)
    return None
