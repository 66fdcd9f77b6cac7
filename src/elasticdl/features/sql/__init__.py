"""Statistics by SQL: one query generator, a dialect for each database, and the engines that run the queries."""

from importlib.util import find_spec

COUNTER = "elasticdl.features.sql._counter"


def has_counter() -> bool:
    """Whether the native core is there; built without a compiler, it is not."""
    return find_spec(COUNTER) is not None
