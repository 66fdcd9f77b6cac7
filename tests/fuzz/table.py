"""What a campaign tried, as Markdown; a page of the documents quotes it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from pathlib import Path

from tests.fuzz import targets
from tests.fuzz.campaign import Progress, progress_of

_PLACE = re.compile(r"(<!-- fuzz: begin -->\n).*?(<!-- fuzz: end -->)", re.DOTALL)


def markdown(tried: Iterable[tuple[Progress, str]]) -> str:
    lines = ["| target | property | inputs | findings left |", "|---|---|---:|---:|"]
    for one, promise in tried:
        lines.append(f"| `{one.target}` | {promise} | {one.inputs:,} | {len(one.findings)} |")
    return "\n".join(lines) + "\n"


def write(ledger: Path, page: Path) -> None:
    """All targets, those nobody has tried with 0 inputs."""
    tried = []
    for name in targets.names():
        progress = progress_of(name, ledger, 0)
        said = inspect.getdoc(targets.load_module(name)) or ""
        tried.append((progress, " ".join(said.split("\n\n")[0].split())))
    text = markdown(tried)
    after, found = _PLACE.subn(lambda match: match[1] + text + match[2], page.read_text())
    if found != 1:
        raise SystemExit(
            f"{page}: expected one place between <!-- fuzz: begin --> and <!-- fuzz: end -->, found {found}"
        )
    page.write_text(after)
