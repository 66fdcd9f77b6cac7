"""A private PostgreSQL server for one test module: on a Unix socket, with a password, killed and started at will.

Found where Debian puts it or on the PATH; where there is none, apt-get is asked for one if this is root. Tests are
skipped, with the reason, where neither works.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

USER, PASSWORD = "trainer", "not-to-be-seen-7391"
_START_S = 60
_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin")


def _programs() -> Path | None:
    found = _found()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        command = ["apt-get", "install", "--yes", "--no-install-recommends", "postgresql"]
        subprocess.run(command, capture_output=True, check=False, timeout=280)
        found = _found()
    return found


def _found() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    places = [place for pattern in _PLACES for place in sorted(Path("/").glob(pattern[1:]))]
    return next((place for place in reversed(places) if (place / "initdb").exists()), None)


class PostgresServer:
    """`start` and `kill` it as often as wanted; its data stays until the end."""

    def __init__(self, programs: Path, directory: Path, as_user: list[str]) -> None:
        self._programs = programs
        self.directory = directory
        self._as_user = as_user

    def address(self, table: str, more: str = "") -> str:
        return f"postgresql://{USER}@/postgres?host={self.directory}&table={table}{more}"

    def execute(self, *statements: str) -> None:
        import psycopg

        given: dict[str, Any] = {"host": str(self.directory), "user": USER, "password": PASSWORD, "dbname": "postgres"}
        with psycopg.connect(**given, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def make(self) -> None:
        words = self.directory / "password"
        words.write_text(PASSWORD)
        if self._as_user:
            shutil.chown(words, "postgres")
        options = ["--auth=scram-sha-256", f"--username={USER}", f"--pwfile={words}", "--no-sync", "--encoding=UTF8"]
        self._run("initdb", "-D", str(self.directory / "data"), *options)
        self.start()

    def start(self) -> None:
        options = f"-c listen_addresses='' -c fsync=off -k {self.directory}"
        self._run(
            "pg_ctl", "start", "-w", "-t", str(_START_S), "-D", str(self.directory / "data"),
            "-l", str(self.directory / "log"), "-o", options,
        )  # fmt: skip

    def kill(self) -> None:
        """At once, as if the machine were gone."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(self.directory / "data"))

    def end(self) -> None:
        pid = self.directory / "data" / "postmaster.pid"
        if pid.exists():
            os.kill(int(pid.read_text().split()[0]), signal.SIGQUIT)

    def _run(self, program: str, *words: str) -> None:
        command = [*self._as_user, str(self._programs / program), *words]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/", timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout.decode()


@contextmanager
def server() -> Iterator[PostgresServer]:
    """A server of its own, or a skip with the reason."""
    pytest.importorskip("psycopg")
    programs = _programs()
    if programs is None:
        pytest.skip("no PostgreSQL server here, and none could be installed: apt-get install postgresql")
    directory = Path(tempfile.mkdtemp(prefix="elasticdl-postgres-"))
    as_user: list[str] = []
    if os.geteuid() == 0:  # which initdb refuses
        try:
            shutil.chown(directory, "postgres", "postgres")
        except LookupError:
            pytest.skip("PostgreSQL refuses root, and there is no user postgres")
        if not shutil.which("setpriv"):
            pytest.skip("PostgreSQL refuses root, and there is no setpriv")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    directory.chmod(0o755)
    made = PostgresServer(programs, directory, as_user)
    try:
        made.make()
        yield made
    finally:
        made.end()
        shutil.rmtree(directory, ignore_errors=True)
