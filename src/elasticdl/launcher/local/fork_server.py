"""`python -m elasticdl.launcher.local.fork_server`: imports modules once and forks replicas that have them.

The launcher starts it and talks to it through `fork_client.ForkServer`; see docs/design/0042-fork-server.md.
A replica that is forked here looks the same as a spawned one: it is a child of the launcher, leads a session of its
own, and has the arguments, environment, limits and output that the launcher requested. A fork copies one thread only,
so the server refuses to work if a module has started threads that outlive a fork.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import json
import os
import resource
import runpy
import signal
import socket
import sys
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The launcher sets this variable of the server's environment to padding, which a replica overwrites with its variables.
PADDING_VARIABLE = "ELASTICDL_FORK_PADDING"
MAX_REQUEST_BYTES = 1 << 16
MAX_REPLY_BYTES = 2000
READY, FORKED, FAILED = b"ready", b"forked", b"failed"
GO = b"go"  # from the launcher to a replica: it watches the replica's pid, so the replica may begin
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A request for one replica. `environ` is added to the environment that the server was started with."""

    argv: tuple[str, ...]  # python -P -m MODULE ARGUMENT…
    environ: dict[str, str]
    limits: tuple[tuple[int, int, int], ...]  # resource, soft, hard

    def to_json(self) -> bytes:
        return json.dumps({"argv": self.argv, "environ": self.environ, "limits": self.limits}).encode()

    @classmethod
    def from_json(cls, text: bytes) -> ForkRequest:
        document: dict[str, Any] = json.loads(text)
        limits = tuple((int(name), int(soft), int(hard)) for name, soft, hard in document["limits"])
        return cls(tuple(document["argv"]), dict(document["environ"]), limits)


class ProcessTitle:
    """The memory from which the kernel reads this process's arguments and environment for /proc/PID."""

    def __init__(self, arguments: tuple[int, int], padding: tuple[int, int]) -> None:
        self._arguments = arguments  # address and size
        self._padding = padding

    @classmethod
    def locate(cls, padding_variable: str = "") -> ProcessTitle:
        """Find that memory. Raises OSError if the kernel does not show where it is."""
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        argument_start, argument_end, environ_start, environ_end = map(int, fields[45:49])
        if not 0 < argument_start < argument_end <= environ_start < environ_end:
            raise OSError("the kernel does not show where the arguments of a process are")
        arguments = (argument_start, argument_end - argument_start)
        if not padding_variable:
            return cls(arguments, (environ_start, 0))
        environ = ctypes.string_at(environ_start, environ_end - environ_start)
        index = environ.find(f"{padding_variable}=".encode())
        if index < 0:
            raise OSError(f"{padding_variable} is not in the environment")
        del os.environ[padding_variable]  # nothing else reads these bytes from now on
        return cls(arguments, (environ_start + index, environ.index(b"\0", index) - index))

    def write(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        variables = tuple(f"{name}={value}" for name, value in environ.items())
        for strings, (address, size) in ((argv, self._arguments), (variables, self._padding)):
            encoded = b"".join(os.fsencode(string) + b"\0" for string in strings)
            if len(encoded) > size:
                raise OSError(f"{len(encoded)} bytes of arguments or variables do not fit into {size}")
            ctypes.memmove(address, encoded.ljust(size, b"\0"), size)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m elasticdl.launcher.local.fork_server", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="our end of the socketpair to the launcher")
    parser.add_argument("--parent", type=int, required=True, help="pid of the launcher; the server ends with it")
    parser.add_argument("modules", nargs="+", metavar="MODULE")
    options = parser.parse_args(arguments)
    launcher = socket.socket(fileno=options.fd)
    launcher.set_inheritable(False)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != options.parent:
        return 0  # the launcher has died before it could be watched
    try:
        title = ProcessTitle.locate(PADDING_VARIABLE)
        preload(options.modules)
        _check_single_thread()
    except Exception as exc:
        launcher.send(f"{type(exc).__name__}: {exc}".encode()[:MAX_REPLY_BYTES])
        return 1
    launcher.send(READY)
    request = _serve(launcher, title)
    if request is None:
        return 0
    _run_module(request)
    return 0


def preload(modules: list[str]) -> None:
    """Import the modules, with the garbage collector off, which would take a tenth of the time."""
    gc.disable()
    for module in modules:
        with suppress(Exception):  # an extra or the native core is missing; a replica that needs it raises the error
            importlib.import_module(module)
    gc.freeze()
    gc.enable()


def _check_single_thread() -> None:
    """Raise OSError if other threads survive a fork. OpenBLAS ends its own before a fork and restarts them on use."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    threads = os.listdir("/proc/self/task")
    if len(threads) > 1:
        names = sorted(Path(f"/proc/self/task/{thread}/comm").read_text().strip() for thread in threads)
        raise OSError(f"cannot fork: importing has started threads ({', '.join(names)})")


def _serve(launcher: socket.socket, title: ProcessTitle) -> ForkRequest | None:
    """Fork a replica for each request. In the replica it returns the request; in the server None, at the end."""
    while True:
        text, descriptors, _, _ = socket.recv_fds(launcher, MAX_REQUEST_BYTES, 2)
        if not text:
            return None
        output, handshake = descriptors
        request = ForkRequest.from_json(text)
        sys.stdout.flush()
        sys.stderr.flush()
        middle = os.fork()
        if middle == 0:
            # The replica's parent ends at once: the launcher, which is a subreaper, becomes its parent.
            if _fork_or_exit():
                os._exit(0)
            launcher.close()
            _become_replica(request, output, handshake, title)
            return request
        os.close(output)
        os.close(handshake)
        _, status = os.waitpid(middle, 0)
        launcher.send(FORKED if status == 0 else FAILED)


def _fork_or_exit() -> int:
    try:
        return os.fork()
    except OSError:
        os._exit(1)


def _become_replica(request: ForkRequest, output: int, handshake: int, title: ProcessTitle) -> None:
    """Set up this process as the requested replica, send its pid, and wait until the launcher watches it."""
    with socket.socket(fileno=handshake) as launcher:
        try:
            os.setsid()
            for name, soft, hard in request.limits:
                if resource.getrlimit(name) != (soft, hard):
                    resource.setrlimit(name, (soft, hard))
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            title.write(request.argv, request.environ)
            os.environ.update(request.environ)
            _reseed()
            launcher.send(str(os.getpid()).encode())
            is_watched = launcher.recv(len(GO)) == GO
        except (OSError, ValueError):
            os._exit(1)
    if not is_watched:
        os._exit(1)


def _reseed() -> None:
    """Renew random state that a new interpreter draws when it imports these modules; `random` does so itself."""
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    if (processes := sys.modules.get("multiprocessing.process")) is not None:
        processes.current_process().authkey = os.urandom(32)


def _run_module(request: ForkRequest) -> None:
    """Run the module as `python -m` does, in a `__main__` of its own."""
    module = request.argv[3]
    sys.orig_argv[:] = request.argv
    sys.argv[:] = [module, *request.argv[4:]]
    main_module = types.ModuleType("__main__")
    main_module.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = main_module
    runpy._run_module_as_main(module)  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
