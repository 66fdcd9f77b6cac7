"""The fuzzing targets: one module each, with `fuzz_one`, and optionally `seeds` and `MEMORY_BYTES`."""

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
_OTHER_MODULES = {"__main__", "campaign", "child", "scratch", "table", "targets"}


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
        """Returns the empty input, the seeds and the corpus."""
        corpus = [path.read_bytes() for path in sorted(self.corpus.glob("*")) if not path.name.startswith(".")]
        return [b"", *self.seeds(), *corpus]

    def try_bounded(self, data: bytes) -> None:
        """Runs one input. Raises AssertionError if the target allocates more than it may. Slow: traces every
        allocation."""
        tracemalloc.start()
        try:
            self.fuzz_one(data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak <= self.memory_bytes, f"{len(data)} bytes made {self.name} allocate {peak} bytes"


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules([str(HERE)]) if module.name not in _OTHER_MODULES)


def load_module(name: str) -> ModuleType:
    if name not in names():
        raise SystemExit(f"no target {name!r}; targets are {', '.join(names())}")
    return importlib.import_module(f"tests.fuzz.{name}")


def load(name: str) -> Target:
    module = load_module(name)
    seeds: Callable[[], Iterable[bytes]] = getattr(module, "seeds", tuple)
    return Target(name, module.fuzz_one, seeds, getattr(module, "MEMORY_BYTES", MEMORY_BYTES))
