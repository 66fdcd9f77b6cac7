"""Embedding layers of torch whose rows are in tables: on the ps of a job, or in this process alone."""

from elasticdl.errors import PermanentError
from elasticdl.extras import reinstall_command

try:
    import elasticdl.ps._native  # noqa: F401
except ImportError as exc:
    raise PermanentError(
        f"embedding layers need the native core of the ps, which cannot be loaded: {exc}. "
        f"Install a C++17 compiler and ElasticDL again: {reinstall_command()}"
    ) from exc
