"""The targets: found by what they have, checked for what they promise."""

from __future__ import annotations

import importlib
import pkgutil
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
MEMORY_BYTES = 32 << 20
_MACHINERY = {"__main__", "campaign", "child", "scratch", "table", "targets"}


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    fuzz_one: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    memory_bytes: int

    @property
    def corpus(self) -> Path:
        return HERE / "corpus" / self.name

    def inputs(self) -> list[bytes]:
        """What is kept, and what the target says is right."""
        kept = [path.read_bytes() for path in sorted(self.corpus.glob("*")) if not path.name.startswith(".")]
        return [b"", *self.seeds(), *kept]

    def try_bounded(self, data: bytes) -> None:
        """One input; AssertionError where it makes the target allocate more than it may. Slow: every allocation is
        looked at."""
        tracemalloc.start()
        try:
            self.fuzz_one(data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak <= self.memory_bytes, f"{len(data)} bytes made {self.name} allocate {peak} at once"


def names() -> list[str]:
    return sorted(found.name for found in pkgutil.iter_modules([str(HERE)]) if found.name not in _MACHINERY)


def load_module(name: str) -> ModuleType:
    if name not in names():
        raise SystemExit(f"no target {name!r}; there are {', '.join(names())}")
    return importlib.import_module(f"tests.fuzz.{name}")


def load(name: str) -> Target:
    module = load_module(name)
    seeds: Callable[[], Iterable[bytes]] = getattr(module, "seeds", tuple)
    return Target(name, module.fuzz_one, seeds, getattr(module, "MEMORY_BYTES", MEMORY_BYTES))
