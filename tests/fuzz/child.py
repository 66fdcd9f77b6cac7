"""Runs atheris over one target: `python -m tests.fuzz.child NAME [libFuzzer's options and directories]`.

libFuzzer never returns and ends the process at the first finding, so each batch of a campaign has its own process. An
input for which the target needs more memory than it may have makes an allocation fail, and so is a finding.
"""

from __future__ import annotations

import logging
import resource
import sys
from collections.abc import Callable

import atheris

from tests.fuzz import targets

UNLIMITED_INPUTS = 100  # inputs before memory is limited
CORPUS_BYTES = 64 << 20  # memory for libFuzzer's corpus


def main(name: str, options: list[str]) -> None:
    logging.disable(logging.CRITICAL)
    with atheris.instrument_imports(include=["elasticdl"]):
        target = targets.load(name)
        for data in target.inputs():  # loads lazily imported modules before memory is limited
            target.fuzz_one(data)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    atheris.Setup([f"tests.fuzz.{name}", *options], _with_memory_limit(target))
    atheris.Fuzz()


def _with_memory_limit(target: targets.Target) -> Callable[[bytes], None]:
    """Limits memory after some inputs: libFuzzer maps its own memory with the first ones."""
    tried = 0

    def fuzz_one(data: bytes) -> None:
        nonlocal tried
        tried += 1
        if tried == UNLIMITED_INPUTS:
            limit = _address_space_bytes() + CORPUS_BYTES + target.memory_bytes
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        target.fuzz_one(data)

    return fuzz_one


def _address_space_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
