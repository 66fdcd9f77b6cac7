"""`python -m tests.fuzz`: a campaign over every target, resumed where it was; see `--help`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz import table, targets
from tests.fuzz.campaign import ROOT, Campaign


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--target", action="append", choices=targets.names(), help="only this one; may be repeated")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of each target, those of earlier runs included")
    parser.add_argument("--seed", type=int, default=1, help="of a campaign that begins; one that goes on has its own")
    parser.add_argument("--directory", type=Path, default=ROOT / "build" / "fuzz", help="progress, corpus, findings")
    parser.add_argument("--keep", action="store_true", help="afterwards, add what reaches more to tests/fuzz/corpus")
    parser.add_argument("--input", type=Path, help="try this one input of one --target, and say what comes of it")
    parser.add_argument("--table", type=Path, metavar="PAGE", help="write what was tried into this page")
    given = parser.parse_args(arguments)
    chosen = given.target or targets.names()
    if given.input:
        if len(chosen) != 1:
            parser.error("--input needs the one --target it is for")
        targets.load(chosen[0]).try_bounded(given.input.read_bytes())
        print(f"{chosen[0]}: {given.input} does no harm")
        return 0
    if given.table:
        table.write(given.directory.resolve(), given.table)
        return 0
    ends = []
    for name in chosen:
        campaign = Campaign(name, given.directory.resolve(), given.seed)
        ends.append(campaign.run(given.inputs, lambda told: print(told, flush=True)))
        if given.keep:
            campaign.keep()
    return 0 if all(ends) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
