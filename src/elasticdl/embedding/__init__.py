"""Embedding layers of torch whose rows lie in tables: of the ps in a job, of this process alone."""

from elasticdl.errors import PermanentError

try:
    import elasticdl.ps._native  # noqa: F401
except ImportError as exc:
    raise PermanentError(
        f"embedding layers need the native core of the ps, which cannot be loaded: {exc}. "
        "Install a C++17 compiler and ElasticDL again: pip install --force-reinstall elasticdl"
    ) from exc
