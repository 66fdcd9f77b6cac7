"""`elasticdl simulate`."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import click

from elasticdl.cli import simulate_options
from elasticdl.cli.command import Command, typed
from elasticdl.errors import SpecError

if TYPE_CHECKING:
    from elasticdl.scheduler.snapshot import Node
    from elasticdl.sim.engine import Setting
    from elasticdl.sim.interface import Cost
    from elasticdl.sim.outcome import Outcome

EXAMPLES = """
elasticdl simulate --list-policies
elasticdl simulate --policy fifo-gang,goodput --trace synthetic:jobs=200,per_hour=30 --report report
elasticdl simulate --policy pollux,goodput --trace workloads/workload-1.csv --nodes 16 --gpus-per-node 4
elasticdl simulate --policy gavel,sia --trace throughputs.json:jobs=500 --kinds v100:8x4,k80:8x4
elasticdl simulate --policy goodput --trace philly.csv:cluster=6c71a0 --jobs 5000 --failures MTBF=864000,repair=3600
elasticdl simulate --what-if job.yaml --snapshot cluster.json
elasticdl simulate --what-if elasticjob.yaml --on kubernetes --namespace training
"""


@click.command("simulate", cls=Command, examples=EXAMPLES)
@simulate_options.all_of_them
def command(**given: Any) -> None:
    """Run scheduling policies on a trace of jobs, on a cluster that is only computed.

    The policies are those of `elasticdl scheduler`, and so is the loop that asks them. The same command gives the same
    results. Ctrl-C ends it with what there is.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # fits are tiny: threads would only wait for each other
    if given["list_policies"]:
        _list_policies()
        return
    if given["what_if"] or given["write_snapshot"]:
        from elasticdl.cli import what_if

        what_if.answer(given)
        return
    for option in ("snapshot", "on", "context", "namespace", "device", "priority"):
        if given[option] is not None:
            raise SpecError(f"--{option}: is for --what-if and --write-snapshot")
    if not given["policy"] or not given["trace"]:
        raise SpecError("expected --policy and --trace, --what-if, or --list-policies; see `elasticdl simulate --help`")
    _simulate(given)


def _simulate(given: dict[str, Any]) -> None:
    from rich.console import Console

    from elasticdl.cli import simulate_screen
    from elasticdl.scheduler import policies
    from elasticdl.sim import running, source

    names = policy_names(given["policy"])
    for name in names:
        policies.named(name)
    trace = source.opened(given["trace"], given["profiles"], given["jobs"] or 0)
    setting = _setting(given)
    _check_kinds(trace.kinds(), setting.nodes)
    for path in (given["json"], given["parquet"]):
        if path and not path.absolute().parent.is_dir():
            raise SpecError(f"{path}: expected a file in a directory that exists")
    total = sum(1 for _ in trace.jobs())  # reads all of it: what is wrong is told before anything runs
    processes = given["processes"] or os.cpu_count() or 1
    stop = _Stop()
    found: dict[str, Outcome] = {}
    with stop, simulate_screen.opened(names, total) as screen:
        for outcome in running.simulate_all(names, trace, setting, processes, screen.show, stop.is_asked):
            found[outcome.policy] = outcome
    outcomes = [found[name] for name in names if name in found]
    simulate_screen.table(outcomes, Console())
    _write(outcomes, given, setting, total)
    if stop.is_asked():
        raise click.exceptions.Exit(130)


def _write(outcomes: list[Outcome], given: dict[str, Any], setting: Setting, total: int) -> None:
    from elasticdl.sim import page, results

    made_by = typed()
    if given["json"]:
        nodes = [
            {"name": one.name, "devices": one.devices, "kind": one.kind, "rack": one.rack} for one in setting.nodes
        ]
        results.write_json(
            given["json"], results.document(outcomes, made_by, {"trace": given["trace"], "nodes": nodes})
        )
    if given["parquet"]:
        results.write_parquet(given["parquet"], outcomes, made_by)
    if given["report"] and outcomes:
        devices = sum(node.devices for node in setting.nodes)
        about = {
            "trace": given["trace"],
            "jobs": f"{total}",
            "cluster": f"{len(setting.nodes)} nodes, {devices} devices",
        }
        click.echo(f"report: {page.write(given['report'], outcomes, made_by, about)}")


def policy_names(text: str) -> list[str]:
    """`a,b:x=1,y=2,c`: commas are between policies and between parameters of one."""
    names: list[str] = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        if names and "=" in part and ":" not in part:
            names[-1] += f",{part}"
        else:
            names.append(part)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SpecError(f"--policy: expected each once, received {', '.join(twice)} twice")
    return names


def _setting(given: dict[str, Any]) -> Setting:
    from elasticdl.sim import cluster
    from elasticdl.sim.engine import Setting

    count = given["nodes"] or (0 if given["kinds"] else 16)
    nodes = cluster.nodes(count, given["gpus_per_node"], given["kinds"], given["racks"] or 0)
    names = tuple(node.name for node in nodes)
    return Setting(
        nodes,
        cost_of(given["restart_cost"], given["costs"]),
        cluster.failures(given["failures"], names, given["seed"]) if given["failures"] else (),
        cluster.stragglers(given["stragglers"], names),
        given["interference"],
        given["interval"] or 0.0,
        keeps_spans=bool(given["report"] or given["json"]),
    )


def cost_of(alike: float | None, text: str | None) -> Cost:
    from elasticdl.sim import cluster
    from elasticdl.sim.interface import Cost

    if alike is not None and text:
        raise SpecError("expected --restart-cost or --costs, received both")
    if not text:
        return Cost.alike(30.0 if alike is None else alike)
    values = cluster.pairs("--costs", text)
    if not values or set(values) - {"start", "change", "join"} or not all(0 <= one < 1e12 for one in values.values()):
        raise SpecError(f"--costs: expected start=S,change=S,join=S with seconds of 0 or more, received {text!r}")
    return Cost(values.get("start", 0.0), values.get("change", 0.0), values.get("join", 0.0))


def _check_kinds(measured: list[str], nodes: tuple[Node, ...]) -> None:
    """Jobs that were measured on some kinds of devices do not run on others."""
    unknown = sorted({node.kind for node in nodes} - {"", *measured})
    if measured and unknown:
        raise SpecError(f"--kinds: the trace was measured on {', '.join(measured)}; received {', '.join(unknown)}")


def _list_policies() -> None:
    from importlib import import_module

    from elasticdl.scheduler import policies

    for name, (module, _) in sorted(policies.KNOWN.items()):
        said = import_module(f"elasticdl.scheduler.policies.{module}").__doc__ or ""
        click.echo(f"{name:20}{said.strip().splitlines()[0]}")


class _Stop:
    """The first Ctrl-C asks for an end, the second is one."""

    def __init__(self) -> None:
        self._asked = False
        self._before: Any = None

    def is_asked(self) -> bool:
        return self._asked

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGINT, self._ask)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _ask(self, *_: object) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
