"""`elasticdl scheduler --on kubernetes`."""

from __future__ import annotations

import logging
import signal

import click

from elasticdl.cli.place import Place, connect
from elasticdl.scheduler.interface import Policy

CPU, GPU = "cpu", "nvidia.com/gpu"


def serve(policy: Policy, place: Place, device: str | None, interval_s: float | None) -> None:
    """Until a signal comes: in a terminal, or as the only pod of a Deployment."""
    from elasticdl.kube.kinds import NODE
    from elasticdl.scheduler.cluster.kubernetes import Namespace
    from elasticdl.scheduler.cluster.serving import Server
    from elasticdl.scheduler.local.rates import warm_up
    from elasticdl.spec.cluster import amount

    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    warm_up()
    api = connect(place.context)
    if device is None:
        allocatable = [node["status"].get("allocatable", {}) for node in api.list(NODE)[0]]
        device = GPU if any(amount(str(one.get(GPU, "0"))) for one in allocatable) else CPU
    cluster = Namespace(api, place.namespace or api.namespace, device)
    server = Server(policy, cluster, interval_s)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: server.stop())
    click.echo(f"policy {policy.name} shares {device} among the ElasticJobs of namespace {cluster.namespace}")
    server.run()
    click.echo("the scheduler ends; jobs go on with what they have")
