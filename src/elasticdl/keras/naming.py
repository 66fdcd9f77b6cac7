"""Names of layers and variables that are the same in every process, whatever else was built there before. Pure.

Keras numbers layers that were given no name by a count of the process: the second model of a process has `dense_3`
where the first had `dense`. Here they are numbered anew among their neighbours of the same model, in their order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence


def is_made_up(name: str, kind: str) -> bool:
    """Whether Keras made this name for a layer of the class `kind`."""
    return re.fullmatch(rf"{_snake(kind)}(_\d+)?", name) is not None


def stable(paths: Sequence[str], made_up: Collection[str]) -> list[str]:
    """A name for each path, all different; the parts in `made_up` are numbered anew."""
    numbered: dict[tuple[str, ...], str] = {}  # the path of a part as Keras has it, to its name here
    taken: set[str] = set()
    names: list[str] = []
    for path in paths:
        parts = path.replace(".", "_").split("/")
        name = ""
        for depth, part in enumerate(parts[:-1], start=1):
            key = tuple(parts[:depth])
            if key not in numbered:
                plain = re.sub(r"_\d+$", "", part) if part in made_up else part
                numbered[key] = _free(_joined(name, plain), set(numbered.values()))
            name = numbered[key]
        names.append(_free(_joined(name, parts[-1]), taken))
        taken.add(names[-1])
    return names


def _snake(kind: str) -> str:
    """As Keras does it: `Conv2D` is `conv2d`, `MaxPooling2D` is `max_pooling2d`."""
    name = re.sub(r"\W+", "", kind)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def _joined(parent: str, part: str) -> str:
    return f"{parent}/{part}" if parent else part


def _free(name: str, taken: set[str]) -> str:
    number, free = 0, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
