"""Files are replaced atomically."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from elasticdl import atomic


def test_after_an_error_the_old_file_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "preprocessor.json"
    path.write_text("old")

    with pytest.raises(TypeError), atomic.open_file(path) as file:
        file.writelines([b"half", "no bytes"])  # type: ignore[list-item]

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_of_two_who_write_at_once_the_last_to_end_wins(tmp_path: Path) -> None:
    path = tmp_path / "target_counts.npz"

    with atomic.open_file(path) as slow:
        slow.write(b"slow, ")
        with atomic.open_file(path) as fast:
            fast.write(b"fast")
        assert path.read_bytes() == b"fast"
        slow.write(b"and whole")

    assert path.read_bytes() == b"slow, and whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_private_file_is_its_owners_alone_even_where_it_was_not(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)

    atomic.write_file(path, "süß", mode=atomic.PRIVATE_MODE)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text(encoding="utf-8") == "süß"


def test_a_place_that_takes_no_file_is_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        atomic.write_file(tmp_path / "missing" / "page.html", "text")
