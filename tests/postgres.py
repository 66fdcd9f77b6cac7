"""A private PostgreSQL server for one test module, on a Unix socket and with a password.

The programs are searched for on the PATH and where Debian installs them. Without them they are installed with apt-get
if the tests run as root; otherwise the tests are skipped with the reason.
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
_DIRECTORIES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin")


def _find_or_install_programs() -> Path | None:
    directory = _find_programs()
    if directory is None and os.geteuid() == 0 and shutil.which("apt-get"):
        command = ["apt-get", "install", "--yes", "--no-install-recommends", "postgresql"]
        subprocess.run(command, capture_output=True, check=False, timeout=280)
        directory = _find_programs()
    return directory


def _find_programs() -> Path | None:
    initdb = shutil.which("initdb")
    if initdb:
        return Path(initdb).resolve().parent
    directories = [directory for pattern in _DIRECTORIES for directory in sorted(Path("/").glob(pattern[1:]))]
    return next((directory for directory in reversed(directories) if (directory / "initdb").exists()), None)


class PostgresServer:
    """A server that tests `start` and `kill` repeatedly. Its data is kept until `end`."""

    def __init__(self, programs: Path, directory: Path, as_user: list[str]) -> None:
        self._programs = programs
        self.directory = directory
        self._as_user = as_user

    def address(self, table: str, more: str = "") -> str:
        return f"postgresql://{USER}@/postgres?host={self.directory}&table={table}{more}"

    def execute(self, *statements: str) -> None:
        import psycopg

        parameters: dict[str, Any] = {
            "host": str(self.directory),
            "user": USER,
            "password": PASSWORD,
            "dbname": "postgres",
        }
        with psycopg.connect(**parameters, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def create(self) -> None:
        password_file = self.directory / "password"
        password_file.write_text(PASSWORD)
        if self._as_user:
            shutil.chown(password_file, "postgres")
        options = [
            "--auth=scram-sha-256",
            f"--username={USER}",
            f"--pwfile={password_file}",
            "--no-sync",
            "--encoding=UTF8",
        ]
        self._run("initdb", "-D", str(self.directory / "data"), *options)
        self.start()

    def start(self) -> None:
        options = f"-c listen_addresses='' -c fsync=off -k {self.directory}"
        self._run(
            "pg_ctl", "start", "-w", "-t", str(_START_S), "-D", str(self.directory / "data"),
            "-l", str(self.directory / "log"), "-o", options,
        )  # fmt: skip

    def kill(self) -> None:
        """Ends the server immediately, as a crash does; `start` recovers."""
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
    """Runs a new server until the block ends; skips the test with the reason if that is impossible."""
    pytest.importorskip("psycopg")
    programs = _find_or_install_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server here, and none could be installed: apt-get install postgresql")
    directory = Path(tempfile.mkdtemp(prefix="elasticdl-postgres-"))
    as_user: list[str] = []
    if os.geteuid() == 0:  # initdb refuses to run as root
        try:
            shutil.chown(directory, "postgres", "postgres")
        except LookupError:
            pytest.skip("PostgreSQL refuses root, and there is no user postgres")
        if not shutil.which("setpriv"):
            pytest.skip("PostgreSQL refuses root, and there is no setpriv")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    directory.chmod(0o755)
    postgres = PostgresServer(programs, directory, as_user)
    try:
        postgres.create()
        yield postgres
    finally:
        postgres.end()
        shutil.rmtree(directory, ignore_errors=True)
