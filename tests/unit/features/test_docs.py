"""The pages of transformations are those that their docstrings make."""

from __future__ import annotations

from pathlib import Path

from elasticdl.features.docs import main, render_pages

DIRECTORY = Path(__file__).parents[3] / "docs" / "features"


def test_the_pages_are_those_of_the_docstrings() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in DIRECTORY.glob("*.md")}

    pages = render_pages()

    assert {name: committed.get(name) for name in pages} == pages, "run `make pages`"


def test_the_pages_are_written(tmp_path: Path) -> None:
    main(tmp_path / "pages")

    assert {path.name for path in (tmp_path / "pages").iterdir()} == set(render_pages())
    assert "LogRound(num_bins=16, base=2)" in (tmp_path / "pages" / "LogRound.md").read_text(encoding="utf-8")
