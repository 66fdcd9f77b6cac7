"""Pods that run out of memory come back with more of it, up to a limit. Pure."""

from __future__ import annotations

from elasticdl.launcher.resources import memory_of
from elasticdl.master.actions import Action
from elasticdl.master.job import Job
from elasticdl.master.membership import OUT_OF_MEMORY, Cause


def judged(job: Job, role: str, raises: int, cause_name: str, cause: Cause, now: float) -> tuple[Cause, list[Action]]:
    """What an exit costs where it was for lack of memory: nothing while there is more to give.

    `raises`: how often the memory of its role had been raised when this pod was launched.
    """
    if cause_name != OUT_OF_MEMORY or job.spec.cluster is None:
        return cause, []
    had, known = memory_of(job.spec, role, raises), job.ledger.raises.get(role, 0)
    if raises < known:  # another one of its role has run out before: the next has more already
        return cause._replace(reason=f"{cause.reason} (had {had})", crashed=False), []
    more = memory_of(job.spec, role, raises + 1)
    if more == had:
        why = f"{cause.reason} (had {had}, the most allowed; raise --{role}_resource_request or --memory_most)"
        return cause._replace(reason=why), []
    job.ledger.raises[role] = raises + 1
    note = job.note(now, "memory-raised", reason=f"{role} pods get {more} from now on, {had} was not enough")
    return cause._replace(reason=f"{cause.reason} (had {had})", crashed=False), [note]
