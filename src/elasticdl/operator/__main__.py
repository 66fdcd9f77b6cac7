"""`python -m elasticdl.operator`: waits until it leads, then looks after ElasticJobs: all, or those of namespaces."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any, cast

import click
import kopf

from elasticdl.errors import ElasticDLError
from elasticdl.kube.api import Api
from elasticdl.kube.election import LEASE_S, Election
from elasticdl.operator import handlers, health

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def lead_and_serve(
    api: Api, election: Election, alive: health.HealthServer, namespaces: Sequence[str] = ()
) -> None:
    """Term after term, until a signal comes."""
    loop = asyncio.get_running_loop()
    beating = loop.create_task(alive.heartbeat.run())
    is_lost = True
    while is_lost:
        waiting = loop.create_task(election.wait_until_leader())
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, waiting.cancel)
        try:
            await waiting
        except asyncio.CancelledError:
            break
        health.IS_LEADER.set(1)
        is_lost = await serve(api, election, namespaces)
        health.IS_LEADER.set(0)
    beating.cancel()


async def serve(api: Api, election: Election, namespaces: Sequence[str] = ()) -> bool:
    """Act until the Lease is lost (True) or a signal comes (False). `namespaces`: where; none: everywhere."""
    loop = asyncio.get_running_loop()
    is_over = asyncio.Event()
    keeping = loop.create_task(election.wait_until_lost())
    keeping.add_done_callback(lambda _: is_over.set())
    before = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=handlers.Handlers(api).registry,
        settings=handlers.kopf_settings(),
        clusterwide=not namespaces,
        namespaces=namespaces,
        standalone=True,
        identity=cast(Any, election.identity),  # kopf would look for the user's name, which users of pods need not have
        stop_flag=is_over,
    )
    for number in STOP_SIGNALS:  # in the place of kopf's own, after which it would wait for our flag
        loop.add_signal_handler(number, is_over.set)
    await kopf.run_tasks(tasks, ignored=before)
    if keeping.done():
        return True
    keeping.cancel()
    await election.release()
    return False


@click.command()
@click.option("--port", default=8080, show_default=True, help="Of /healthz and /metrics; 0: any free one.")
@click.option("--lease", "lease_name", default="elasticdl-operator", show_default=True, help="The Lease to lead by.")
@click.option("--namespace", default="", help="Where the Lease lies. Default: that of the pod, or of the context.")
@click.option(
    "--watch",
    "namespaces",
    multiple=True,
    metavar="NAMESPACE",
    help="Look after the ElasticJobs of this namespace only; may be given again. Default: of the whole cluster.",
)
@click.option("--lease-seconds", default=LEASE_S, show_default=True, help="Another takes over after so long a silence.")
@click.option("--log-level", default="INFO", show_default=True, help="DEBUG, INFO, WARNING or ERROR.")
def main(
    port: int, lease_name: str, namespace: str, namespaces: tuple[str, ...], lease_seconds: float, log_level: str
) -> None:
    """Look after the ElasticJobs of a cluster, or of some of its namespaces."""
    logging.basicConfig(level=log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    if log_level != "DEBUG":  # kopf tells of every event it passed on; masters make one a second
        logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    try:
        api = Api.connect(role="operator", timeout_s=lease_seconds / 3)
    except ElasticDLError as exc:
        click.echo(str(exc), err=True)
        sys.exit(exc.exit_code)
    me = f"{socket.gethostname()}-{os.getpid()}"
    election = Election(api, lease_name, namespace or api.namespace, me, lease_s=lease_seconds)
    beat = health.HealthServer(port)
    logging.getLogger(__name__).info("%s answers on port %d", me, beat.port)
    try:
        asyncio.run(lead_and_serve(api, election, beat, namespaces))
    finally:
        beat.close()


if __name__ == "__main__":
    main()
