from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "data.md"


def test_the_snippets_of_the_guide_run_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    snippets = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)

    exec(compile("\n".join(snippets), str(GUIDE), "exec"), {"__name__": "guide"})

    assert len(snippets) >= 7
