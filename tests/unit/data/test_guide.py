from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize(("name", "least"), [("data.md", 9), ("streaming.md", 2)])
def test_the_snippets_of_the_guide_run_from_top_to_bottom(
    name: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    guide = DOCS / name
    snippets = re.findall(r"```python\n(.*?)```", guide.read_text(), flags=re.DOTALL)

    exec(compile("\n".join(snippets), str(guide), "exec"), {"__name__": "guide"})

    assert len(snippets) >= least
