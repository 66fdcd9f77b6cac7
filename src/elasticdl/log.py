"""The format of logs: a line with time, process and message, on standard error."""

from __future__ import annotations

import logging
import sys


def configure_logging(name: str, level: str = "INFO") -> logging.Logger:
    """Configures the root logger of this process; `name` is its name in each line, e.g. `worker-3`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"%(asctime)s {name} %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    return logging.getLogger("elasticdl")
