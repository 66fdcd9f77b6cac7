"""One way to log: a line with time, process and message, on standard error."""

from __future__ import annotations

import logging
import sys


def configure_logging(name: str, level: str = "INFO") -> logging.Logger:
    """Set up the root logger of this process; `name` says who speaks, e.g. `worker-3`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"%(asctime)s {name} %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    return logging.getLogger("elasticdl")
