"""One process of atheris over one target: `python -m tests.fuzz.child NAME [libFuzzer's options and directories]`.

libFuzzer never returns and ends the process at the first finding, hence a process for each part of a campaign. More
memory than what the target may have for one input is an error of the allocation, and so a finding.
"""

from __future__ import annotations

import logging
import resource
import sys
from collections.abc import Callable

import atheris

from tests.fuzz import targets

UNBOUNDED = 100  # inputs before memory is bounded
OWN_BYTES = 64 << 20  # for libFuzzer's corpus


def main(name: str, options: list[str]) -> None:
    logging.disable(logging.CRITICAL)
    with atheris.instrument_imports(include=["elasticdl"]):
        target = targets.load(name)
        for data in target.inputs():  # imports what is imported late, before memory is bounded
            target.fuzz_one(data)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    atheris.Setup([f"tests.fuzz.{name}", *options], _bounded(target))
    atheris.Fuzz()


def _bounded(target: targets.Target) -> Callable[[bytes], None]:
    """The target, with a bound on memory from a late input on: libFuzzer maps its own with the first."""
    tried = 0

    def fuzz_one(data: bytes) -> None:
        nonlocal tried
        tried += 1
        if tried == UNBOUNDED:
            bound = _address_space_bytes() + OWN_BYTES + target.memory_bytes
            resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
        target.fuzz_one(data)

    return fuzz_one


def _address_space_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
