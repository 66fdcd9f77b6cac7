"""Fuzzing: inputs nobody would write, for every decoder that a socket or a file reaches.

A target is a module here with `fuzz_one(data: bytes) -> None`, which raises only where a property does not hold. It may
have `seeds() -> Iterable[bytes]`, inputs that are right, and `MEMORY_BYTES`, what one input may make it allocate at
once. Inputs that are kept lie in corpus/NAME. `make fuzz` runs them all; docs/design/0038-fuzzing-and-chaos.md.
"""
