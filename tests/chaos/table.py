"""What struck in a campaign and what came of it, as JSON and Markdown; a page of the documents quotes it."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos.job import Outcome
from tests.chaos.schedule import Kind, Role, Strategy

if TYPE_CHECKING:
    from tests.chaos.campaign import Campaign


def counts(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """All numbers of the table, from the outcomes alone."""
    done = list(outcomes)
    newest = {one.number: one for one in done}  # what failed is struck again once the code is another
    struck: Counter[str] = Counter()
    for one in done:
        struck.update(one.struck)
    return {
        "faults": sum(struck.values()),
        "in_pairs": sum(one.in_pairs for one in done),
        "jobs": {strategy.value: sum(one.strategy == strategy for one in done) for strategy in Strategy},
        "resumed": sum(one.resumed for one in done),
        "succeeded": sum(one.ending == "succeeded" and not one.problem for one in done),
        "told": sum(one.ending.startswith("told") and not one.problem for one in done),
        "failed": [_failure(one) for one in newest.values() if one.problem],
        "mended": [_failure(one) for one in done if one.problem and not newest[one.number].problem],
        "commits": list(dict.fromkeys(one.commit for one in done if one.commit)),
        "hours": round(sum(one.seconds for one in done) / 3600, 2),
        "struck": {kind.value: _roles(struck, kind) for kind in Kind},
    }


def _failure(outcome: Outcome) -> dict[str, Any]:
    return {"job": outcome.number, "strategy": outcome.strategy, "problem": outcome.problem, "commit": outcome.commit}


def _roles(struck: Counter[str], kind: Kind) -> dict[str, int]:
    return {role.value: struck[f"{kind} of {role}"] for role in Role if struck[f"{kind} of {role}"]}


def _commits(commits: list[str]) -> str:
    if len(commits) < 2:
        return f"commit {''.join(commits) or 'unknown'}"
    return f"{len(commits)} commits from {commits[0]} to {commits[-1]}"


def markdown(numbers: dict[str, Any], about: dict[str, Any]) -> str:
    roles = [role.value for role in Role if any(role.value in by_role for by_role in numbers["struck"].values())]
    jobs = ", ".join(f"{count} {name}" for name, count in numbers["jobs"].items() if count)
    lines = [
        f"{numbers['faults']:,} faults, {numbers['in_pairs']:,} of them at the same moment as another, in "
        f"{sum(numbers['jobs'].values())} jobs ({jobs}) and {numbers['hours']:g} hours; seed {about['seed']}, "
        f"{_commits(numbers['commits'])}. "
        f"{numbers['succeeded']} jobs ended with the bits or counts of an undisturbed one, "
        f"{numbers['told']} said why they could not go on, {len(numbers['failed'])} failed, "
        f"{len(numbers['mended'])} had failed until what they found was mended. {numbers['resumed']} times "
        "launcher and master were gone together, or the job ended and advised it: it was resumed by hand.",
        "",
        f"| fault | {' | '.join(roles)} | together |",
        f"|---|{'---:|' * (len(roles) + 1)}",
    ]
    for kind, by_role in numbers["struck"].items():
        if Kind(kind).name not in about["kinds"]:
            continue  # it cannot be made there
        cells = [f"{by_role[role]:,}" if role in by_role else "" for role in roles]
        lines.append(f"| {kind} | {' | '.join(cells)} | {sum(by_role.values()):,} |")
    for key, title in (("failed", "Failed"), ("mended", "Failed, and passed once what was found was mended")):
        if numbers[key]:
            lines += ["", f"{title}:", ""]
            lines += [
                f"- job {one['job']} ({one['strategy']}, commit {one['commit'] or 'unknown'}): "
                f"{one['problem'].splitlines()[0][:200]}"
                for one in numbers[key]
            ]
    return "\n".join(line if line.startswith("|") else _wrapped(line) for line in lines) + "\n"


def _wrapped(line: str) -> str:
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def write(campaign: Campaign, page: Path | None = None) -> None:
    """`table.json` and `table.md` beside the outcomes; into `page`, too, between its two marks."""
    numbers = counts(campaign.outcomes())
    text = markdown(numbers, campaign.about)
    (campaign.directory / "table.json").write_text(json.dumps(campaign.about | numbers, indent=1) + "\n")
    (campaign.directory / "table.md").write_text(text)
    if page is not None:
        begin, end = f"<!-- {campaign.mark}: begin -->", f"<!-- {campaign.mark}: end -->"
        before = page.read_text()
        place = re.compile(f"({begin}\n).*?({end})", re.DOTALL)
        after, found = place.subn(lambda match: match[1] + text + match[2], before)
        if found != 1:
            raise SystemExit(f"{page}: expected one place between {begin} and {end}, found {found}")
        page.write_text(after)
