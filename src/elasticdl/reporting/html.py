"""HTML reports: one file that needs nothing else, with its images embedded."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from html import escape
from pathlib import Path

from elasticdl import atomic

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
pre { background: #f5f7fa; padding: .7rem 1rem; overflow-x: auto; border-radius: 4px; font-size: 13px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13.5px; }
th, td { padding: .35rem .5rem; text-align: right; border-bottom: 1px solid #e4e7eb; vertical-align: bottom; }
td { white-space: nowrap; }
th { color: #52606d; font-weight: 600; } th:first-child, td:first-child { text-align: left; }
td.best { font-weight: 700; color: #1d6f42; } img { max-width: 100%; height: auto; }
td.left, th.left { text-align: left; } td.left { white-space: normal; }
.wide { overflow-x: auto; } .note { color: #52606d; } .pair { display: flex; flex-wrap: wrap; gap: 1rem; }
.pair p { flex: 1 1 26rem; margin: 0; } details { margin: .5rem 0; } summary { cursor: pointer; }
"""


def html_document(title: str, body: str) -> str:
    """The document; `body` is HTML already."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body>
{body}
</body></html>
"""


def image_html(name: str, content: bytes) -> str:
    """A PNG inside the page."""
    return f'<p><img alt="{escape(name)}" src="data:image/png;base64,{b64encode(content).decode()}"></p>'


def write_report(directory: Path, text: str, pictures: Mapping[str, bytes]) -> Path:
    """index.html, and each picture as a PNG beside it."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in pictures.items():
        (directory / f"{name}.png").write_bytes(content)
    path = directory / "index.html"
    atomic.write_file(path, text)
    return path
