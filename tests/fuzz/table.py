"""The inputs and findings of all targets, as Markdown that a page of the documentation quotes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from pathlib import Path

from tests.fuzz import targets
from tests.fuzz.campaign import Progress, load_progress

_SECTION = re.compile(r"(<!-- fuzz: begin -->\n).*?(<!-- fuzz: end -->)", re.DOTALL)


def markdown(targets_tried: Iterable[tuple[Progress, str]]) -> str:
    lines = ["| target | property | inputs | findings left |", "|---|---|---:|---:|"]
    for progress, claim in targets_tried:
        lines.append(f"| `{progress.target}` | {claim} | {progress.inputs:,} | {len(progress.findings)} |")
    return "\n".join(lines) + "\n"


def write(ledger: Path, page: Path) -> None:
    """Writes the table of all targets; those that were never run have 0 inputs."""
    rows = []
    for name in targets.names():
        progress = load_progress(name, ledger, 0)
        docstring = inspect.getdoc(targets.load_module(name)) or ""
        rows.append((progress, " ".join(docstring.split("\n\n")[0].split())))
    text = markdown(rows)
    after, replaced = _SECTION.subn(lambda match: match[1] + text + match[2], page.read_text())
    if replaced != 1:
        raise SystemExit(
            f"{page}: expected one section between <!-- fuzz: begin --> and <!-- fuzz: end -->, found {replaced}"
        )
    page.write_text(after)
