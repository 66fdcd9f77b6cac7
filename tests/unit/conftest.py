"""Unit tests start no process: what needs one is an integration test."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

_STARTS_A_PROCESS = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "os.spawn"}
)
_is_unit_test = False


def _refuse_processes(event: str, arguments: tuple[object, ...]) -> None:
    if _is_unit_test and event in _STARTS_A_PROCESS:
        raise RuntimeError(f"a unit test starts a process ({event} {arguments[:2]}): move it to tests/integration")


sys.addaudithook(_refuse_processes)


@pytest.fixture(autouse=True)
def _no_process() -> Iterator[None]:
    global _is_unit_test
    _is_unit_test = True
    yield
    _is_unit_test = False


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of a unit test never appear among those of the user who runs it."""
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path_factory.getbasetemp() / "home"))
