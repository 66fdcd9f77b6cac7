"""`python -m tests.fuzz`: fuzzes every target and continues where it stopped; see `--help`."""

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
    parser.add_argument("--target", action="append", choices=targets.names(), help="only this target; can be repeated")
    parser.add_argument(
        "--inputs", type=int, default=1_000_000, help="inputs of each target, including those of earlier runs"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of a new campaign; a continued one keeps its own")
    parser.add_argument(
        "--directory", type=Path, default=ROOT / "build" / "fuzz", help="directory of corpus and findings"
    )
    parser.add_argument("--ledger", type=Path, help="directory of the progress, if another: can be committed")
    parser.add_argument("--concurrency", type=int, default=os.cpu_count(), help="targets at a time, one core each")
    parser.add_argument(
        "--save-corpus", action="store_true", help="add inputs that reached new code to tests/fuzz/corpus"
    )
    parser.add_argument("--input", type=Path, help="run one --target with the input in this file")
    parser.add_argument(
        "--table", type=Path, metavar="PAGE", help="write the table of inputs and findings into this page"
    )
    options = parser.parse_args(arguments)
    selected = options.target or targets.names()
    if options.input:
        if len(selected) != 1:
            parser.error("--input needs the one --target it is for")
        targets.load(selected[0]).try_bounded(options.input.read_bytes())
        print(f"{selected[0]}: {options.input} is handled correctly")
        return 0
    ledger = (options.ledger or options.directory).resolve()
    if options.table:
        table.write(ledger, options.table)
        return 0

    def run(name: str) -> bool:
        campaign = Campaign(name, options.directory.resolve(), options.seed, ledger)
        has_passed = campaign.run(options.inputs, lambda message: print(message, flush=True))
        if options.save_corpus:
            campaign.save_corpus()
        return has_passed

    with ThreadPoolExecutor(options.concurrency) as pool:
        return 0 if all([*pool.map(run, selected)]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
