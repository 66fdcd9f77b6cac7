"""`python -m tests.fuzz`: a campaign over every target, resumed where it was; see `--help`."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz import table, targets
from tests.fuzz.campaign import ROOT, Campaign


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--target", action="append", choices=targets.names(), help="only this one; may be repeated")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of each target, those of earlier runs included")
    parser.add_argument("--seed", type=int, default=1, help="of a campaign that begins; one that goes on has its own")
    parser.add_argument("--directory", type=Path, default=ROOT / "build" / "fuzz", help="corpus, findings")
    parser.add_argument("--ledger", type=Path, help="where progress is kept, if not there: to be committed")
    parser.add_argument("--at_once", type=int, default=os.cpu_count(), help="targets at the same time, one core each")
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
    ledger = (given.ledger or given.directory).resolve()
    if given.table:
        table.write(ledger, given.table)
        return 0

    def run(name: str) -> bool:
        campaign = Campaign(name, given.directory.resolve(), given.seed, ledger)
        is_well = campaign.run(given.inputs, lambda told: print(told, flush=True))
        if given.keep:
            campaign.keep()
        return is_well

    with ThreadPoolExecutor(given.at_once) as pool:
        return 0 if all([*pool.map(run, chosen)]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
