"""What a cluster costs a job of pods, on a real Kubernetes: ours beside torchrun in pods, and the share that is ours.

    python benchmarks/kube_times.py [--quick] [--repeats N] [--json FILE]

Every repetition applies a job of three workers, preempts one of them by a pod of high priority that needs its slots,
and frees these slots again. `cluster/latency.py` defines the boundary between Kubernetes and us. The cluster is that of
KUBECONFIG, or one that is started for the run (see `make test-cluster`); it needs two nodes with four kube.here/slot
each, and everything created on it is deleted again. The systems take turns.
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
from cluster.jobs import ElasticDLPods, TorchrunPods, rival_pod
from cluster.repetition import APPLIED, FREED, PREEMPTED, Repetition, RepetitionOutcome
from cluster.timeline import Timeline

from elasticdl.kube.api import Api
from tests.cluster import host_operator, operator
from tests.cluster.kube import ROOT, Kube, running, why_not

NAMESPACE = "bench"
SYSTEMS = {system.system: system for system in (ElasticDLPods, TorchrunPods)}
Outcomes = dict[str, list[RepetitionOutcome]]


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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that jobs end with this process
    # Pods may not write into this checkout: without this they would compile it at every start, unlike an image.
    compileall.compile_dir(ROOT / "src", quiet=1)
    names = options.systems.split(",")
    outcomes: Outcomes = {name: [] for name in names}
    notes = [table.machine()]
    with _cluster() as kube, Timeline(Api.connect(), NAMESPACE) as timeline:
        for repetition in range(1, (1 if options.quick else options.repeats) + 1):
            for name in names:
                outcome = _run_repetition(kube, timeline, name, repetition, options.limit, options.keep)
                outcomes[name].append(outcome)
                summary = "; ".join(
                    f"{measure} {latency.total_s:.2f} s" for measure, latency in outcome.latencies.items()
                )
                print(f"{repetition} {name:10} {summary or '-'} {outcome.note}", file=sys.stderr, flush=True)
                if outcome.note:
                    notes.append(f"{name}, repetition {repetition}: {outcome.note}")
    notes.append(table.machine())
    rows = _rows(outcomes)
    table.show(f"Jobs of pods ({len(outcomes[names[0]])} repetitions)", rows, notes=notes)
    if options.json:
        table.write(options.json, rows)
    return 0


@contextmanager
def _cluster() -> Iterator[Kube]:
    """Yields a cluster with the operator, a namespace, and as many slots as three workers need."""
    with running() as kube:
        os.environ |= {name: kube.environ[name] for name in ("KUBECONFIG", "PATH")}
        # An operator that runs already is used as it is.
        with nullcontext() if operator.is_there(kube) else host_operator.running(kube):
            kube.open_namespace(NAMESPACE)
            try:
                filler = json.dumps(rival_pod("filler"))
                kube.kubectl("create", f"--namespace={NAMESPACE}", "--filename=-", text=filler)
                kube.kubectl("wait", f"--namespace={NAMESPACE}", "pod/filler", "--for=condition=Ready", "--timeout=60s")
                yield kube
            finally:
                kube.kubectl("delete", "elasticjobs", "--all", f"--namespace={NAMESPACE}", "--timeout=60s", check=False)
                kube.kubectl("delete", "namespace", NAMESPACE, "--timeout=100s")


def _run_repetition(
    kube: Kube, timeline: Timeline, name: str, number: int, limit_s: float, keep: Path | None
) -> RepetitionOutcome:
    with ExitStack() as stack:
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=f"{name}-{number}-", dir=keep))
        if keep is None:
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
        job = SYSTEMS[name](kube, NAMESPACE, f"{name}-{number}", directory)
        return Repetition(kube, timeline, job, directory, NAMESPACE, limit_s).run()


def _rows(outcomes: Outcomes) -> list[table.Row]:
    rows = []
    for measure in (PREEMPTED, APPLIED, FREED):
        rows += _rows_of_both(measure, outcomes, partial(_total_s, measure=measure))
        rows += _rows_of_own_share(measure, outcomes)
        if measure == PREEMPTED:
            rows += _rows_of_both(
                "longest time without a survivor's step meanwhile", outcomes, lambda outcome: outcome.gap_s
            )
        if measure == APPLIED:
            rows += _rows_of_both(
                "from kubectl apply until every worker has done a step", outcomes, lambda outcome: outcome.all_s
            )
    return rows + [row for measure in (PREEMPTED, APPLIED, FREED) for row in _rows_of_parts(measure, outcomes)]


def _total_s(outcome: RepetitionOutcome, measure: str) -> float:
    return outcome.latencies[measure].total_s


def _own_s(outcome: RepetitionOutcome, measure: str) -> float:
    return outcome.latencies[measure].own_s


def _own_percent(outcome: RepetitionOutcome, measure: str) -> float:
    return 100.0 * _own_s(outcome, measure) / _total_s(outcome, measure)


def _rows_of_both(
    measure: str, outcomes: Outcomes, value_of: Callable[[RepetitionOutcome], float | None]
) -> list[table.Row]:
    rows = []
    for statistic, summarize in (("median", statistics.median), ("worst", max)):
        ours, peer = (_summarize(outcomes.get(name, []), value_of, summarize) for name in SYSTEMS)
        is_met = None if ours is None or peer is None else ours < peer
        rows.append(table.Row(f"{measure}, {statistic}", "s", ours, peer, TorchrunPods.system, "< peer", is_met))
    return rows


def _rows_of_own_share(measure: str, outcomes: Outcomes) -> list[table.Row]:
    """Returns rows of how much of a latency is not Kubernetes's."""
    rows = []
    for unit, own_part_of in (("s", _own_s), ("%", _own_percent)):
        value_of = partial(own_part_of, measure=measure)
        ours, peer = (_summarize(outcomes.get(name, []), value_of, statistics.median) for name in SYSTEMS)
        rows.append(table.Row(f"{measure}: ours, not Kubernetes's, median", unit, ours, peer, TorchrunPods.system))
    return rows


def _rows_of_parts(measure: str, outcomes: Outcomes) -> list[table.Row]:
    """Returns a row for each part of our latency."""
    latencies = [
        outcome.latencies[measure] for outcome in outcomes.get(ElasticDLPods.system, []) if measure in outcome.latencies
    ]
    rows = []
    for name, is_kubernetes, _ in latencies[0].parts if latencies else []:
        owner = "Kubernetes" if is_kubernetes else "ours"
        seconds = statistics.median(
            latency.durations_s()[name] for latency in latencies if name in latency.durations_s()
        )
        rows.append(table.Row(f"{measure}: {name} ({owner}), median", "s", seconds, None, ""))
    return rows


def _summarize(
    outcomes: Sequence[RepetitionOutcome],
    value_of: Callable[[RepetitionOutcome], float | None],
    summarize: Callable[[list[float]], float],
) -> float | None:
    """Returns None unless every repetition has a value: without one of them there is no median and no worst."""
    values = []
    for outcome in outcomes:
        try:
            values.append(value_of(outcome))
        except KeyError:
            return None
    seconds = [seconds for seconds in values if seconds is not None]
    return summarize(seconds) if seconds and len(seconds) == len(values) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
