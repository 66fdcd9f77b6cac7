"""`elasticdl scheduler`, on this machine or on Kubernetes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from elasticdl.cli.arguments import on_option
from elasticdl.cli.command import Command
from elasticdl.errors import SpecError
from elasticdl.jobs import home
from elasticdl.jobs.lookup import KUBERNETES, connect_cluster
from elasticdl.scheduler.interface import Policy

if TYPE_CHECKING:
    from elasticdl.kube.probes import ProbeServer
    from elasticdl.scheduler.kubernetes.health import SchedulerHealth


DEFAULT_POLICY = "goodput"
QUEUE_LOCK_TIMEOUT_S = 2.0  # a scheduler that is just ending has let go of the queue by then

EXAMPLES = """
elasticdl scheduler
elasticdl scheduler --budget 320 --policy goodput
elasticdl train job.yaml --queue --num_workers=2 --max_workers=8
elasticdl train job.yaml --queue --priority=10
elasticdl scheduler --on kubernetes --namespace training
elasticdl scheduler --on kubernetes -n training --image_name registry/elasticdl:1 --yaml | kubectl apply -f -
"""


@click.command("scheduler", cls=Command, examples=EXAMPLES)
@click.option(
    "--policy",
    metavar="NAME[:KEY=VALUE,…]",
    help=f"Policy that decides on the workers of each job. Default: {DEFAULT_POLICY}.",
)
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="DEVICES",
    help="Number of CPU slots that all jobs share. Default: the cores of this machine.",
)
@click.option(
    "--nodes",
    metavar="NxDEVICES",
    help="Instead of --budget: simulate several nodes, for example 4x8 for 4 nodes of 8 slots.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Time between two decisions if nothing happens. 0: never decide then. Default: chosen by the policy.",
)
@on_option("What to share. Default: this machine.")
@click.option("--namespace", "-n", metavar="NAME", help="Namespace of the ElasticJobs. Default: that of the context.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: the current one.")
@click.option(
    "--device",
    metavar="RESOURCE",
    help="On Kubernetes: the resource to share. Default: nvidia.com/gpu if nodes have it, else cpu.",
)
@click.option(
    "--yaml",
    is_flag=True,
    help="On Kubernetes: print ServiceAccount, Roles and Deployment of the scheduler for `kubectl apply`; run nothing.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="On Kubernetes: port for /healthz and /readyz. 0: any free port. Default: none; with --yaml 8080.",
)
@click.option("--image_name", metavar="IMAGE", help="With --yaml: an image with ElasticDL and its extra `scheduler`.")
def command(
    policy: str | None,
    budget: int | None,
    nodes: str | None,
    interval: float | None,
    on: str | None,
    yaml: bool,
    image_name: str | None,
    **cluster: Any,  # namespace, context, device, port
) -> None:
    """Share this machine among the jobs of `elasticdl train --queue`, or a cluster among its ElasticJobs.

    Jobs start at once with what is free, grow when others end, and shrink or wait when others come. Jobs of greater
    priority go first. A worker takes as many devices as it has threads. Ctrl-C ends the scheduler but no job: the next
    scheduler takes over all of them.

    On Kubernetes, it sets the number of workers of each ElasticJob of a namespace, as `kubectl scale` does, and
    suspends those that wait. If several schedulers run for a namespace, one decides and the others wait until it ends.
    """
    if on == KUBERNETES:
        if budget is not None or nodes is not None:
            raise click.UsageError("--budget and --nodes are for this machine; the nodes of a cluster are known")
        if yaml != (image_name is not None):
            raise click.UsageError("--yaml and --image_name go together: the image is that of the Deployment")
        if yaml and cluster["port"] == 0:
            raise click.UsageError("--port=0: the probes of a Deployment need to know the port; give one, or none")
        from elasticdl.scheduler import policies

        name = policy or default_policy()
        loaded = policies.load_policy(name)
        options = ClusterSchedulerOptions(interval_s=interval, **cluster)
        if image_name is not None:
            print_manifests(options, image_name, name)
        else:
            serve_cluster(options, loaded)
        return
    if yaml or image_name or any(value is not None for value in cluster.values()):
        raise click.UsageError(
            "--namespace, --context, --device, --yaml, --port and --image_name are for Kubernetes; use --on kubernetes"
        )
    serve_this_machine(policy, budget, nodes, interval)


def serve_this_machine(policy: str | None, budget: int | None, nodes: str | None, interval: float | None) -> None:
    """Serves the queue of this machine until a signal comes."""
    from elasticdl.cli.screens.scheduler_panel import SchedulerScreen
    from elasticdl.scheduler import policies
    from elasticdl.scheduler.accounts.rates import fit_rates, warm_up_fitting
    from elasticdl.scheduler.accounts.table import JobTable
    from elasticdl.scheduler.local.nodes import parse_nodes
    from elasticdl.scheduler.local.scheduler import LocalScheduler
    from elasticdl.scheduler.local.server import LocalSchedulerServer

    loaded = policies.load_policy(policy or default_policy())
    turns = LocalScheduler(loaded, JobTable(parse_nodes(budget, nodes), fit_rates), interval)
    queue = home.local_queue()
    with queue.acquire_lock(QUEUE_LOCK_TIMEOUT_S) as is_ours:
        if not is_ours:
            raise SpecError(
                f"another scheduler serves {queue.root}; end it first, or set ELASTICDL_HOME to another home"
            )
        _log_to_file(queue.root / "scheduler.log")
        warm_up_fitting()
        with SchedulerScreen.open() as screen:
            screen.show_notice(
                f"policy {loaded.name}, {turns.job_table.total_devices} devices; "
                "jobs come from `elasticdl train --queue`"
            )
            server = LocalSchedulerServer(queue, turns, screen.show, screen.show_notice)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, lambda *_: server.stop())
            server.run()
    running = sum(bool(entry.allocated) for entry in turns.job_table.entries.values())
    click.echo(
        f"the scheduler ends; {_running_jobs(running)} without it, and the next `elasticdl scheduler` takes over"
    )


def default_policy() -> str:
    from elasticdl.scheduler import policies

    return DEFAULT_POLICY if DEFAULT_POLICY in policies.POLICY_REGISTRY else "elastic-first-come"


def _running_jobs(running: int) -> str:
    return f"{running} job{'s' * (running != 1)} run{'s' * (running == 1)} on"


def _log_to_file(path: Path) -> None:
    logging.basicConfig(filename=path, format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)


@dataclass(frozen=True, slots=True)
class ClusterSchedulerOptions:
    """The options of a scheduler on Kubernetes; None: not given."""

    namespace: str | None
    context: str | None
    device: str | None  # the resource that is shared
    interval_s: float | None
    port: int | None  # for probes


def serve_cluster(options: ClusterSchedulerOptions, policy: Policy) -> None:
    """Serves a namespace until a signal comes. While another scheduler of the namespace leads, waits.

    Probes are answered on `port`, if one is given.
    """
    from elasticdl.kube.election import LEASE_S, Election
    from elasticdl.kube.kinds import NODE
    from elasticdl.scheduler.accounts.rates import warm_up_fitting
    from elasticdl.scheduler.kubernetes import capacity
    from elasticdl.scheduler.kubernetes.health import SchedulerHealth
    from elasticdl.scheduler.kubernetes.namespace import NamespaceCluster
    from elasticdl.scheduler.kubernetes.server import LEASE_NAME, NamespaceSchedulerServer, lead_and_serve

    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    warm_up_fitting()
    # A write that began when it led is over before another may lead.
    api = connect_cluster(options.context or "", role="scheduler", timeout_s=LEASE_S / 3)
    namespace = options.namespace or api.namespace
    device = options.device or capacity.default_device_resource(api.list(NODE)[0])
    election = Election(api, LEASE_NAME, namespace, f"{socket.gethostname()}-{os.getpid()}")
    cluster = (api, namespace, device, lambda: election.is_leader)
    click.echo(f"policy {policy.name} shares {device} among the ElasticJobs of namespace {namespace}")
    pulse = SchedulerHealth()
    with ExitStack() as stack:
        if options.port is not None:
            probes = _start_probe_server(options.port, pulse)
            stack.callback(probes.close)
            click.echo(f"it answers on port {probes.port}")
        asyncio.run(
            lead_and_serve(
                lambda: NamespaceSchedulerServer(policy, NamespaceCluster(*cluster), options.interval_s, pulse),
                election,
                pulse,
            )
        )
    click.echo("the scheduler ends; jobs go on with what they have")


def _start_probe_server(port: int, pulse: SchedulerHealth) -> ProbeServer:
    from elasticdl.kube.probes import ProbeServer

    server = ProbeServer(port, pulse.answer_probe)
    try:
        server.start()
    except OSError as exc:
        raise SpecError(f"--port={port}: cannot be listened on: {exc.strerror}; give another, or 0 for any") from exc
    return server


def print_manifests(options: ClusterSchedulerOptions, image: str, policy: str) -> None:
    """The objects of a scheduler in the cluster, for `kubectl apply`."""
    import yaml

    from elasticdl.scheduler.kubernetes import health, manifest

    namespace = options.namespace or connect_cluster(options.context or "").namespace
    arguments = ["--on=kubernetes", f"--namespace={namespace}", f"--policy={policy}"]
    arguments += [f"--device={options.device}"] if options.device is not None else []
    arguments += [f"--interval={options.interval_s:g}"] if options.interval_s is not None else []
    objects = manifest.scheduler_objects(
        namespace, image, arguments, health.PORT if options.port is None else options.port
    )
    click.echo(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True), nl=False)
