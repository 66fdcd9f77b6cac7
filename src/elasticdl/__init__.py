"""Elastic distributed deep learning: workers join and leave, and the job continues to the same model.

A training from Python, in three lines:

    import elasticdl

    job = elasticdl.submit("job.yaml", num_workers=4)
    print(job.wait().metrics)

See docs/api.md. `submit` and `jobs` are imported when they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elasticdl import jobs as jobs
    from elasticdl.api import submit as submit

__version__ = "0.3.0"


def __getattr__(name: str) -> Any:
    if name == "jobs":
        return import_module("elasticdl.jobs")
    if name == "submit":
        return import_module("elasticdl.api").submit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), "jobs", "submit"]
