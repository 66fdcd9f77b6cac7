"""Parses text into plain values: YAML and `a=1;b=[1,2]`. Nothing is ever evaluated."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

from elasticdl.errors import SpecError

# Far above what a user writes; a file from elsewhere must not end the process or fill its memory.
MAX_DEPTH = 100
MAX_ALIASED_VALUES = 10_000


class _Loader(yaml.SafeLoader):
    """Safe YAML in which 1e-3 is a number and duplicate keys are errors.

    Nesting and the size of aliases are limited: ten lines of aliases can expand to a billion values.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._sizes: dict[yaml.Node, int] = {}  # values below each finished node, itself included
        self._repeated = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        is_alias, mark = isinstance(event, yaml.AliasEvent), event.start_mark
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is None:
            return None
        if is_alias:
            if node not in self._sizes:
                raise yaml.MarkedYAMLError(problem="an alias of a node that contains it", problem_mark=mark)
            self._repeated += self._sizes[node]
            if self._repeated > MAX_ALIASED_VALUES:
                raise yaml.MarkedYAMLError(
                    problem=f"aliases expand to more than {MAX_ALIASED_VALUES} values", problem_mark=mark
                )
        else:
            self._sizes[node] = 1 + sum(self._sizes[child] for child in _children(node))
        return node

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        node = super().compose_scalar_node(anchor)
        if not node.value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in node.value):
            raise yaml.MarkedYAMLError(problem="half of a surrogate pair is not text", problem_mark=node.start_mark)
        return node


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


# YAML 1.1 reads 1e-3 as a word, which is never meant for a learning rate.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _construct_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"duplicate key {key.value!r}", problem_mark=key.start_mark)
            seen.add(key.value)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


# Errors of PyYAML, and those of values that are not what they look like or their tag says, such as 2026-13-01.
_YAML_ERRORS = (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError)


def parse_yaml(text: str, where: str) -> Any:
    """Parses YAML. `where` names the origin of `text` in errors."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark
        position = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        raise SpecError(f"{position}: not valid YAML: {exc.problem or exc}") from exc
    except _YAML_ERRORS as exc:
        raise SpecError(f"{where}: not valid YAML: {exc}") from exc


def parse_mapping(words: Iterable[str], where: str) -> dict[str, Any]:
    """Parses `a=1;b=[1,2]`, several of them, or YAML mappings; later ones win."""
    result: dict[str, Any] = {}
    for word in words:
        if re.match(r"\s*\{", word):
            value = parse_yaml(word, where)
            if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
                raise SpecError(f"{where}: expected a mapping from names to values; received {word!r}")
            result |= value
            continue
        for item in _split_items(word):
            name, separator, text = item.partition("=")
            if not separator or not name.strip().isidentifier():
                raise SpecError(f'{where}: expected "name=value;name=value"; received {item.strip()!r}')
            result[name.strip()] = parse_yaml(text.strip(), f"{where} {name.strip()}")
    return result


def parse_pairs(text: str, where: str) -> dict[str, str]:
    """Parses `a=1,b=2` into words; later ones win."""
    result: dict[str, str] = {}
    for item in text.split(","):
        name, separator, value = item.partition("=")
        if not separator or not name.strip():
            raise SpecError(f'{where}: expected "name=value,name=value"; received {item.strip()!r}')
        result[name.strip()] = value.strip()
    return result


def _split_items(word: str) -> list[str]:
    """Splits at semicolons outside brackets and quotes."""
    items, item, depth, quote = [], "", 0, ""
    for letter in word:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in "]})":
            depth -= 1
        if letter == ";" and depth == 0 and not quote:
            items.append(item)
            item = ""
        else:
            item += letter
    return [part for part in (*items, item) if part.strip()]
