"""A real PostgreSQL server for tests, made in a directory of its own, without a network.

Found where Debian puts it or on the PATH; where there is none, apt-get is asked for one if this is root. Tests are
skipped, with the reason, where neither works.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_OTHERS = ("postgres", "nobody")


@contextmanager
def server() -> Iterator[str]:
    """The directory of its socket: the host of an address. Trusts everybody who can reach that."""
    programs = _programs()
    # Not pytest's own: the server is another user there, and that one cannot enter.
    home = Path(tempfile.mkdtemp(prefix="elasticdl-postgres-"))
    as_user = _as_user(home)
    home.chmod(0o755)
    data = home / "data"
    settings = f"-k {home} -c listen_addresses= -c fsync=off -c dynamic_shared_memory_type=mmap"
    control = [*as_user, str(programs / "pg_ctl"), "-D", str(data), "-w", "-t", "120"]
    try:
        initdb = [str(programs / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-N", "--locale=C.UTF-8"]
        _run([*as_user, *initdb], home)
        _run([*control, "-l", str(home / "log"), "-o", settings, "start"], home)
        try:
            yield str(home)
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], capture_output=True, check=False, cwd=home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _programs() -> Path:
    found = _found()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        command = ["apt-get", "install", "--yes", "--no-install-recommends", "postgresql"]
        subprocess.run(command, capture_output=True, check=False, timeout=280)
        found = _found()
    if found is None:
        pytest.skip("no PostgreSQL server here, and none could be installed: apt-get install postgresql")
    return found


def _found() -> Path | None:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return debian[-1].parent if debian else Path(on_path).parent if on_path else None


def _as_user(home: Path) -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return []
    for name in _OTHERS:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(home, user.pw_uid, user.pw_gid)
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    pytest.skip("PostgreSQL refuses to run as root, and there is no user postgres or nobody")


def _run(command: list[str], home: Path) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=home)
    log = home / "log"
    assert done.returncode == 0, done.stdout.decode() + (log.read_text() if log.exists() else "")
