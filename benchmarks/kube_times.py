"""What a cluster costs a job of pods, on a real Kubernetes: ours beside torchrun in pods, and the share that is ours.

    python benchmarks/kube_times.py [--quick] [--repeats N] [--json FILE]

Every repetition applies a job of three workers, preempts one of them by a pod of high priority that wants its place,
and gives the place back. `cluster/repetition.py` says where the line between Kubernetes and us is drawn. The cluster
is that of KUBECONFIG, or one that is started for the run (see `make test-cluster`); it needs two nodes with four
kube.here/slot each, and is left as it was found. The systems take turns.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import table
from cluster.jobs import Ours, Torchrun, rival
from cluster.repetition import APPLIED, FREED, PREEMPTED, Outcome, Repetition
from cluster.timeline import Timeline

from elasticdl.kube.api import Api
from tests.cluster import host_operator, operator
from tests.cluster.kube import ROOT, Kube, running, why_not

NAMESPACE = "bench"
SYSTEMS = {system.system: system for system in (Ours, Torchrun)}
Outcomes = dict[str, list[Outcome]]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one repetition")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="default: %(default)s")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds to wait for a job to go on")
    parser.add_argument("--keep", type=Path, help="keep steps and marks of every repetition here")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if reason := why_not():
        raise SystemExit(reason)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that jobs end with us
    # Pods may not write into this checkout: without this they would compile it each time, which no image does.
    compileall.compile_dir(ROOT / "src", quiet=1)
    names = options.systems.split(",")
    outcomes: Outcomes = {name: [] for name in names}
    notes = [table.machine()]
    with _cluster() as kube, Timeline(Api.connect(), NAMESPACE) as timeline:
        for number in range(1, (1 if options.quick else options.repeats) + 1):
            for name in names:
                outcome = _repetition(kube, timeline, name, number, options.limit, options.keep)
                outcomes[name].append(outcome)
                told = "; ".join(f"{what} {chain.total_s:.2f} s" for what, chain in outcome.chains.items())
                print(f"{number} {name:10} {told or '-'} {outcome.note}", file=sys.stderr, flush=True)
                if outcome.note:
                    notes.append(f"{name}, repetition {number}: {outcome.note}")
    notes.append(table.machine())
    rows = _rows(outcomes)
    table.show(f"Jobs of pods ({len(outcomes[names[0]])} repetitions)", rows, notes=notes)
    if options.json:
        table.write(options.json, rows)
    return 0


@contextmanager
def _cluster() -> Iterator[Kube]:
    """With the operator, a namespace, and as many slots as three workers need."""
    with running() as kube:
        os.environ |= {name: kube.environ[name] for name in ("KUBECONFIG", "PATH")}
        # One that is there already is taken as it is.
        with nullcontext() if operator.is_there(kube) else host_operator.running(kube):
            kube.open_namespace(NAMESPACE)
            try:
                filler = json.dumps(rival("filler"))
                kube.kubectl("create", f"--namespace={NAMESPACE}", "--filename=-", text=filler)
                kube.kubectl("wait", f"--namespace={NAMESPACE}", "pod/filler", "--for=condition=Ready", "--timeout=60s")
                yield kube
            finally:
                kube.kubectl("delete", "elasticjobs", "--all", f"--namespace={NAMESPACE}", "--timeout=60s", check=False)
                kube.kubectl("delete", "namespace", NAMESPACE, "--timeout=100s")


def _repetition(kube: Kube, timeline: Timeline, name: str, number: int, limit_s: float, keep: Path | None) -> Outcome:
    with ExitStack() as stack:
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=f"{name}-{number}-", dir=keep))
        if keep is None:
            stack.callback(shutil.rmtree, place, ignore_errors=True)
        job = SYSTEMS[name](kube, NAMESPACE, f"{name}-{number}", place)
        return Repetition(kube, timeline, job, place, NAMESPACE, limit_s).run()


def _rows(outcomes: Outcomes) -> list[table.Row]:
    rows = []
    for measure in (PREEMPTED, APPLIED, FREED):
        rows += _both(measure, outcomes, partial(_total_s, measure=measure))
        rows += _shares(measure, outcomes)
        if measure == PREEMPTED:
            rows += _both("longest time without a survivor's step meanwhile", outcomes, lambda one: one.gap_s)
        if measure == APPLIED:
            rows += _both("from kubectl apply until every worker has done a step", outcomes, lambda one: one.all_s)
    return rows + [row for measure in (PREEMPTED, APPLIED, FREED) for row in _parts(measure, outcomes)]


def _total_s(one: Outcome, measure: str) -> float:
    return one.chains[measure].total_s


def _own_s(one: Outcome, measure: str) -> float:
    return one.chains[measure].own_s


def _own_percent(one: Outcome, measure: str) -> float:
    return 100.0 * _own_s(one, measure) / _total_s(one, measure)


def _both(measure: str, outcomes: Outcomes, value: Callable[[Outcome], float | None]) -> list[table.Row]:
    rows = []
    for label, pick in (("median", statistics.median), ("worst", max)):
        ours, peer = (_picked(outcomes.get(name, []), value, pick) for name in SYSTEMS)
        met = None if ours is None or peer is None else ours < peer
        rows.append(table.Row(f"{measure}, {label}", "s", ours, peer, Torchrun.system, "< peer", met))
    return rows


def _shares(measure: str, outcomes: Outcomes) -> list[table.Row]:
    """How much of it is not Kubernetes's."""
    rows = []
    for unit, own in (("s", _own_s), ("%", _own_percent)):
        value = partial(own, measure=measure)
        ours, peer = (_picked(outcomes.get(name, []), value, statistics.median) for name in SYSTEMS)
        rows.append(table.Row(f"{measure}: ours, not Kubernetes's, median", unit, ours, peer, Torchrun.system))
    return rows


def _parts(measure: str, outcomes: Outcomes) -> list[table.Row]:
    """Where our time goes, link by link."""
    chains = [one.chains[measure] for one in outcomes.get(Ours.system, []) if measure in one.chains]
    rows = []
    for what, is_kubernetes, _ in chains[0].links if chains else []:
        whose = "Kubernetes" if is_kubernetes else "ours"
        seconds = statistics.median(chain.parts()[what] for chain in chains if what in chain.parts())
        rows.append(table.Row(f"{measure}: {what} ({whose}), median", "s", seconds, None, ""))
    return rows


def _picked(
    found: Sequence[Outcome], value: Callable[[Outcome], float | None], pick: Callable[[list[float]], float]
) -> float | None:
    """None unless every repetition has the number: who did not go on once has no median and no worst."""
    values = []
    for one in found:
        try:
            values.append(value(one))
        except KeyError:
            return None
    known = [seconds for seconds in values if seconds is not None]
    return pick(known) if known and len(known) == len(values) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
