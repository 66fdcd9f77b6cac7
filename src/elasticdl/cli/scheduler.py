"""`elasticdl scheduler`."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

import click

from elasticdl.cli import home
from elasticdl.cli.command import Command
from elasticdl.cli.place import KUBERNETES, Place, on_option
from elasticdl.errors import SpecError

POLICY = "goodput"
TAKE_S = 2.0  # a scheduler that is just ending has let go of the queue by then

EXAMPLES = """
elasticdl scheduler
elasticdl scheduler --budget 320 --policy goodput
elasticdl train job.yaml --queue --num_workers=2 --max_workers=8
elasticdl train job.yaml --queue --priority=10
elasticdl scheduler --on kubernetes --namespace training
elasticdl scheduler --on kubernetes -n training --image_name registry/elasticdl:1 --yaml | kubectl apply -f -
"""


@click.command("scheduler", cls=Command, examples=EXAMPLES)
@click.option("--policy", metavar="NAME[:KEY=VALUE,…]", help=f"Who gets how many workers. Default: {POLICY}.")
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="DEVICES",
    help="CPU slots that all jobs share. Default: the cores of this machine.",
)
@click.option(
    "--nodes", metavar="NxDEVICES", help="Instead of --budget: several nodes, as a policy sees them, e.g. 4x8."
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Decide so often though nothing happened; 0: never. Default: as the policy likes.",
)
@on_option("What is shared. Default: this machine.")
@click.option("--namespace", "-n", metavar="NAME", help="Of the ElasticJobs. Default: that of the context.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: the current one.")
@click.option(
    "--device",
    metavar="RESOURCE",
    help="On Kubernetes: what is shared. Default: nvidia.com/gpu where nodes have it, else cpu.",
)
@click.option(
    "--yaml",
    is_flag=True,
    help="On Kubernetes: print account, rights and Deployment of such a scheduler for `kubectl apply`; run nothing.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="On Kubernetes: answer /healthz and /readyz there; 0: any free one. Default: none; with --yaml 8080.",
)
@click.option("--image_name", metavar="IMAGE", help="With --yaml: an image with ElasticDL and its extra `scheduler`.")
def command(
    policy: str | None,
    budget: int | None,
    nodes: str | None,
    interval: float | None,
    on: str | None,
    namespace: str | None,
    context: str | None,
    device: str | None,
    yaml: bool,
    port: int | None,
    image_name: str | None,
) -> None:
    """Share this machine among the jobs of `elasticdl train --queue`, or a cluster among its ElasticJobs.

    Jobs start at once with what is free, grow when others end, shrink or wait when others come; those of greater
    priority go first. A worker takes as many devices as it has threads. Ctrl-C ends the scheduler and no job: the next
    one finds them all again.

    On Kubernetes it writes how many workers each ElasticJob of a namespace wishes for, as `kubectl scale` does, and
    suspends those that wait. Of several for one namespace one decides, and the others wait until it ends.
    """
    if on == KUBERNETES:
        if budget is not None or nodes is not None:
            raise click.UsageError("--budget and --nodes are of this machine; a cluster says itself what it has")
        if yaml != (image_name is not None):
            raise click.UsageError("--yaml and --image_name go together: the image is that of the Deployment")
        if yaml and port == 0:
            raise click.UsageError("--port=0: the probes of a Deployment need to know the port; give one, or none")
        from elasticdl.cli import cluster_scheduler
        from elasticdl.scheduler import policies

        name, place = policy or default_policy(), Place(on, namespace or "", context or "")
        chosen = policies.named(name)
        if image_name is not None:
            cluster_scheduler.show(place, image_name, name, device, interval, port)
        else:
            cluster_scheduler.serve(chosen, place, device, interval, port)
        return
    if namespace or context or device or yaml or image_name or port is not None:
        raise click.UsageError(
            "--namespace, --context, --device, --yaml, --port and --image_name are of Kubernetes; use --on kubernetes"
        )
    serve_here(policy, budget, nodes, interval)


def serve_here(policy: str | None, budget: int | None, nodes: str | None, interval: float | None) -> None:
    """The queue of this machine, until a signal comes."""
    from elasticdl.cli.scheduler_screen import Screen
    from elasticdl.scheduler import policies
    from elasticdl.scheduler.local.book import Book
    from elasticdl.scheduler.local.nodes import declared
    from elasticdl.scheduler.local.rates import rates_of, warm_up
    from elasticdl.scheduler.local.serving import Server
    from elasticdl.scheduler.local.turns import Turns

    chosen = policies.named(policy or default_policy())
    turns = Turns(chosen, Book(declared(budget, nodes), rates_of), interval)
    queue = home.queue()
    with queue.serving(TAKE_S) as is_ours:
        if not is_ours:
            raise SpecError(
                f"another scheduler serves {queue.root}; end it first, or set ELASTICDL_HOME to another home"
            )
        _log_to(queue.root / "scheduler.log")
        warm_up()
        with Screen.open() as screen:
            screen.say(f"policy {chosen.name}, {turns.book.devices} devices; jobs come from `elasticdl train --queue`")
            server = Server(queue, turns, screen.show, screen.say)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, lambda *_: server.stop())
            server.run()
    running = sum(bool(one.given) for one in turns.book.entries.values())
    click.echo(
        f"the scheduler ends; {_jobs(running)} by themselves, and are found again by the next `elasticdl scheduler`"
    )


def default_policy() -> str:
    from elasticdl.scheduler import policies

    return POLICY if POLICY in policies.KNOWN else "elastic-first-come"


def _jobs(running: int) -> str:
    return f"{running} job{'s' * (running != 1)} run{'s' * (running == 1)} on"


def _log_to(path: Path) -> None:
    logging.basicConfig(filename=path, format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
