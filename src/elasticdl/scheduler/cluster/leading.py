"""One of several schedulers of a namespace, of which only the leader decides: term after term, until a signal comes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence

from elasticdl.kube.election import Election
from elasticdl.scheduler.cluster.health import Pulse
from elasticdl.scheduler.cluster.serving import Server

LEASE = "elasticdl-scheduler"  # in the namespace of the jobs: one decides for each
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def lead_and_serve(
    make: Callable[[], Server], election: Election, pulse: Pulse, signals: Sequence[signal.Signals] = SIGNALS
) -> None:
    """A new server for each term: what an old one knew of the namespace may be long ago."""
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    for number in signals:
        loop.add_signal_handler(number, asked.set)
    ending = loop.create_task(asked.wait())
    beating = loop.create_task(pulse.heart.run())
    while not asked.is_set():
        pulse.waits(lambda: election.trouble)
        winning = loop.create_task(election.won())
        await asyncio.wait({winning, ending}, return_when=asyncio.FIRST_COMPLETED)
        if winning.done():
            winning.result()
            await _serve(make(), election, ending)
        else:
            winning.cancel()
    pulse.waits(lambda: election.trouble)
    ending.cancel()
    # After a signal: whoever waits need not wait for it to run out. Also where it was won too late to serve.
    await election.leave()
    beating.cancel()


async def _serve(server: Server, election: Election, ending: asyncio.Task[bool]) -> None:
    """Until the Lease is lost or `ending` is done, and the last write is answered: only then may the Lease go."""
    serving = asyncio.create_task(asyncio.to_thread(server.run))
    keeping = asyncio.create_task(election.kept())
    await asyncio.wait({serving, keeping, ending}, return_when=asyncio.FIRST_COMPLETED)
    server.stop()
    await serving
    if keeping.done():
        keeping.result()
    keeping.cancel()
