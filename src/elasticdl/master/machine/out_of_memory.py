"""Replicas that run out of memory: pods come back with more, up to a limit; users are told what to do. Pure."""

from __future__ import annotations

from elasticdl.launcher.kubernetes.resources import memory_limit
from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.membership import OUT_OF_MEMORY, ExitCause
from elasticdl.master.machine.state import MasterState


def memory_advice(job: MasterState, role: str = "worker") -> str:
    """What a user can do where there is too little memory."""
    if job.spec.cluster is not None:
        return f"give it more with --{role}_resource_request=memory=… or --max_memory"
    if role == "ps":
        return "use more ps on other machines, or a machine with more memory"
    return "use a smaller --minibatch_size, fewer --num_workers, or a machine with more memory"


def assess_out_of_memory(
    job: MasterState, role: str, raises: int, cause_name: str, cause: ExitCause, now: float
) -> tuple[ExitCause, list[Action]]:
    """What an exit costs where it was for lack of memory: nothing while there is more to give.

    `raises`: how often the memory of its role had been raised when this pod was launched.
    """
    if cause_name != OUT_OF_MEMORY:
        return cause, []
    if job.spec.cluster is None:
        return cause._replace(reason=f"{cause.reason}: the kernel ended it; {memory_advice(job, role)}"), []
    had, raised = memory_limit(job.spec, role, raises), job.ledger.memory_raises.get(role, 0)
    if raises < raised:  # another one of its role has run out before: the next has more already
        return cause._replace(reason=f"{cause.reason} (had {had})", crashed=False), []
    more = memory_limit(job.spec, role, raises + 1)
    if more == had:
        reason = f"{cause.reason} (had {had}, the most allowed; raise --{role}_resource_request or --max_memory)"
        return cause._replace(reason=reason), []
    job.ledger.memory_raises[role] = raises + 1
    note = job.add_log_entry(now, "memory-raised", reason=f"{role} pods get {more} from now on, {had} was not enough")
    return cause._replace(reason=f"{cause.reason} (had {had})", crashed=False), [note]
