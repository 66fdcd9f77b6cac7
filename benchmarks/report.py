"""Puts the rows of benchmarks into documents, so that a command has printed every table in them.

    python benchmarks/report.py rescale=rescale.json overhead=overhead.json --into benchmarks/README.md

Each NAME=FILE replaces the text between `<!-- NAME -->` and `<!-- /NAME -->` by the table of FILE (`--json` of the
benchmark). A document without these marks stays as it is. NAME=FILE#PATTERN takes only the rows whose measure matches.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLUMNS = ("measure", "unit", "ours", "peer", "peer_name", "goal", "met")


def to_markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Returns the rows as a Markdown table."""
    lines = ["| " + " | ".join(column.replace("_", "'s ") for column in COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(_text(row[column]) for column in COLUMNS) + " |" for row in rows]
    return "\n".join(lines)


def replace_table(document: str, name: str, table: str) -> str:
    marks = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- /{re.escape(name)} -->)", re.DOTALL)
    return marks.sub(lambda match: f"{match[1]}\n{table}\n\n{match[2]}", document)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--into", nargs="+", type=Path, required=True, metavar="DOCUMENT")
    options = parser.parse_args(arguments)
    for document in options.into:
        text = document.read_text()
        for name, _, file in (table.partition("=") for table in options.tables):
            path, _, pattern = file.partition("#")
            rows = [row for row in json.loads(Path(path).read_text()) if re.search(pattern, row["measure"])]
            text = replace_table(text, name, to_markdown(rows))
        document.write_text(text)
    return 0


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float | int):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
