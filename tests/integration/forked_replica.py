"""A replica that writes down all that could tell a forked process from a spawned one."""

from __future__ import annotations

import gc
import json
import locale
import os
import random
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

MODULE = "tests.integration.forked_replica"
_PER_PROCESS = ("pid", "random", "numpy_random")


def describe_process() -> dict[str, Any]:
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    main = sys.modules["__main__"]
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "leads_session": os.getsid(0) == os.getpid() == os.getpgid(0),
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "path": sys.path,
        "cwd": os.getcwd(),
        "environ": dict(os.environ),
        "kernel_environ": sorted(filter(None, Path("/proc/self/environ").read_text().split("\0"))),
        "kernel_arguments": list(filter(None, Path("/proc/self/cmdline").read_text().split("\0"))),
        "name": Path("/proc/self/comm").read_text(),
        "descriptors": sorted(os.listdir("/proc/self/fd"), key=int),
        "output": [os.readlink(f"/proc/self/fd/{number}") for number in range(3)],
        "signals": {name: status[name].strip() for name in ("SigBlk", "SigIgn", "SigCgt")},
        "handlers": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "limits": [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")],
        "umask": status["Umask"],
        "main": [main.__name__, str(main.__spec__ and main.__spec__.name), str(main.__file__)],
        "flags": list(sys.flags),
        "streams": [
            [stream.encoding, stream.errors, getattr(stream, "line_buffering", None), stream.fileno()]
            for stream in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "locale": [locale.getlocale(), locale.getpreferredencoding()],
        "collects_garbage": gc.isenabled(),
        "random": random.random(),
        "numpy_random": float(np.random.random()),
    }


def without_identity(description: dict[str, Any]) -> dict[str, Any]:
    """The parts that must be equal in all replicas."""
    return {name: value for name, value in description.items() if name not in _PER_PROCESS}


if __name__ == "__main__":
    print(json.dumps(describe_process()), flush=True)
    if "fail" in sys.argv:
        raise SystemExit(3)
    if "raise" in sys.argv:
        raise RuntimeError("this replica fails")
    if "sleep" in sys.argv:
        signal.pause()
