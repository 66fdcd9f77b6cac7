"""The faults of a campaign and their outcomes, as JSON and as Markdown that a page of the documentation quotes."""

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
    """Returns all numbers of the table."""
    finished = list(outcomes)
    newest = {outcome.number: outcome for outcome in finished}  # a job that failed is run again with changed code
    injected: Counter[str] = Counter()
    for outcome in finished:
        injected.update(outcome.injected)
    return {
        "faults": sum(injected.values()),
        "in_pairs": sum(outcome.in_pairs for outcome in finished),
        "jobs": {strategy.value: sum(outcome.strategy == strategy for outcome in finished) for strategy in Strategy},
        "resumed": sum(outcome.resumed for outcome in finished),
        "succeeded": sum(outcome.ending == "succeeded" and not outcome.problem for outcome in finished),
        "explained": sum(outcome.ending.startswith("explained") and not outcome.problem for outcome in finished),
        "failed": [_failure(outcome) for outcome in newest.values() if outcome.problem],
        "fixed": [_failure(outcome) for outcome in finished if outcome.problem and not newest[outcome.number].problem],
        "commits": list(dict.fromkeys(outcome.commit for outcome in finished if outcome.commit)),
        "hours": round(sum(outcome.seconds for outcome in finished) / 3600, 2),
        "injected": {kind.value: _roles(injected, kind) for kind in Kind},
    }


def _failure(outcome: Outcome) -> dict[str, Any]:
    return {"job": outcome.number, "strategy": outcome.strategy, "problem": outcome.problem, "commit": outcome.commit}


def _roles(injected: Counter[str], kind: Kind) -> dict[str, int]:
    return {role.value: injected[f"{kind} of {role}"] for role in Role if injected[f"{kind} of {role}"]}


def _commits(commits: list[str]) -> str:
    if len(commits) < 2:
        return f"commit {''.join(commits) or 'unknown'}"
    return f"{len(commits)} commits from {commits[0]} to {commits[-1]}"


def markdown(numbers: dict[str, Any], settings: dict[str, Any]) -> str:
    roles = [role.value for role in Role if any(role.value in by_role for by_role in numbers["injected"].values())]
    jobs = ", ".join(f"{count} {name}" for name, count in numbers["jobs"].items() if count)
    lines = [
        f"{numbers['faults']:,} faults, {numbers['in_pairs']:,} of them at the same moment as another, in "
        f"{sum(numbers['jobs'].values())} jobs ({jobs}) and {numbers['hours']:g} hours; seed {settings['seed']}, "
        f"{_commits(numbers['commits'])}. "
        f"{numbers['succeeded']} jobs ended with the bits or counts of an undisturbed one, "
        f"{numbers['explained']} reported why they could not continue, {len(numbers['failed'])} failed, "
        f"{len(numbers['fixed'])} failed before the defect they found was fixed. {numbers['resumed']} times launcher "
        "and master died together, or the job ended and advised it, and the campaign resumed the job.",
        "",
        f"| fault | {' | '.join(roles)} | together |",
        f"|---|{'---:|' * (len(roles) + 1)}",
    ]
    for kind, by_role in numbers["injected"].items():
        if Kind(kind).name not in settings["kinds"]:
            continue  # it cannot be injected there
        cells = [f"{by_role[role]:,}" if role in by_role else "" for role in roles]
        lines.append(f"| {kind} | {' | '.join(cells)} | {sum(by_role.values()):,} |")
    for key, title in (("failed", "Failed"), ("fixed", "Failed, and passed once the defect was fixed")):
        if numbers[key]:
            lines += ["", f"{title}:", ""]
            lines += [
                f"- job {failure['job']} ({failure['strategy']}, commit {failure['commit'] or 'unknown'}): "
                f"{failure['problem'].splitlines()[0][:200]}"
                for failure in numbers[key]
            ]
    return "\n".join(line if line.startswith("|") else _wrap(line) for line in lines) + "\n"


def _wrap(line: str) -> str:
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def write(campaign: Campaign, page: Path | None = None) -> None:
    """Writes `table.json` and `table.md` beside the outcomes, and the table into `page` between its two marks."""
    numbers = counts(campaign.outcomes())
    text = markdown(numbers, campaign.settings)
    (campaign.directory / "table.json").write_text(json.dumps(campaign.settings | numbers, indent=1) + "\n")
    (campaign.directory / "table.md").write_text(text)
    if page is not None:
        begin, end = f"<!-- {campaign.mark}: begin -->", f"<!-- {campaign.mark}: end -->"
        before = page.read_text()
        section = re.compile(f"({begin}\n).*?({end})", re.DOTALL)
        after, replaced = section.subn(lambda match: match[1] + text + match[2], before)
        if replaced != 1:
            raise SystemExit(f"{page}: expected one section between {begin} and {end}, found {replaced}")
        page.write_text(after)
