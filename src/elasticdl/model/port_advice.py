"""Which lines of a torchrun script would change to make it elastic without restarts, found in its source."""

from __future__ import annotations

import ast
from typing import NamedTuple

from elasticdl.model.script_source import GUIDE, ScriptSource

MOST_LINES = 16  # of advice; a long script is best read beside the guide

_JOIN = "job = elastic.join(model, optimizer, dataset, global_batch_size=…, epochs=…)"
# By the last part of the name that is called.
_ADVICE = {
    "init_process_group": "leave out: join connects the workers",
    "destroy_process_group": "leave out: join ends with the last step",
    "DistributedDataParallel": "leave out: join takes the plain model",
    "FullyShardedDataParallel": "leave out: join takes the plain model, whole in every worker",
    "fully_shard": "leave out: join takes the plain model, whole in every worker",
    "DistributedSampler": "leave out: join deals the records out",
    "DataLoader": f"{_JOIN}; then `for step in job:` and `for features, labels in step:` for the loops",
    "set_epoch": "leave out: join shuffles each epoch",
    "backward": "step.backward(loss)",
    "zero_grad": "leave out: the step does it",
    "step": "leave out: the step of the job calls the optimizer once for all workers",
    "get_rank": "after the loop, job.is_first says which worker saves the result",
}
_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel")
_UNWRAPPED = "without `.module`: join does not wrap the model"
_OPTIMIZERS = ("optim", "opt")


class Change(NamedTuple):
    """One line of the script and what to write instead."""

    line: int
    code: str
    instead: str


def list_changes(script: ScriptSource) -> list[Change]:
    """The lines to change, in order; one change for each line."""
    lines = script.path.read_text(errors="replace").splitlines()
    calls = sorted((node for node in ast.walk(script.tree) if isinstance(node, ast.Call)), key=lambda node: node.lineno)
    loader = _training_loader(script, calls)
    changes: dict[int, Change] = {}
    for node in calls:
        name = _called_name(script, node)
        is_meant = name in _ADVICE and (name != "step" or _is_optimizer(node.func))
        if is_meant and (name != "DataLoader" or node is loader):
            code = lines[node.lineno - 1].strip()
            changes.setdefault(node.lineno, Change(node.lineno, code, _ADVICE[name]))
    if any(_called_name(script, node) in _WRAPPERS for node in calls):
        for inner in ast.walk(script.tree):
            if isinstance(inner, ast.Attribute) and inner.attr == "module":
                code = lines[inner.lineno - 1].strip()
                changes.setdefault(inner.lineno, Change(inner.lineno, code, _UNWRAPPED))
    return sorted(changes.values())


def advise(script: ScriptSource) -> list[str]:
    """What to tell the user at submit: what happens to the script, and what would make it elastic."""
    name = script.path.name
    restarts = (
        f"{name} runs as under torchrun: whenever a worker comes, goes or dies it is ended and started again, and "
        "resumes from its own checkpoint"
    )
    changes = list_changes(script)
    if not changes:
        return [f"{restarts}; {GUIDE} shows how a script becomes elastic without restarts"]
    width = max(len(change.code[:60]) for change in changes[:MOST_LINES])
    shown = [
        f"  {name}:{change.line:<4} {change.code[:60]:<{width}}  → {change.instead}" for change in changes[:MOST_LINES]
    ]
    more = [f"  and {len(changes) - MOST_LINES} more"] if len(changes) > MOST_LINES else []
    heading = f"these lines would make it elastic without restarts ({GUIDE}):"
    return [restarts, "\n".join([heading, *shown, *more])]


def _called_name(script: ScriptSource, node: ast.Call) -> str:
    """The last part of what is called, whatever the script imports it as."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return script.resolve(node.func).rpartition(".")[2]


def _training_loader(script: ScriptSource, calls: list[ast.Call]) -> ast.Call | None:
    """The loader that join replaces: the first with a sampler, else the first."""
    loaders = [node for node in calls if _called_name(script, node) == "DataLoader"]
    sampled = [node for node in loaders if any(keyword.arg == "sampler" for keyword in node.keywords)]
    return next(iter([*sampled, *loaders]), None)


def _is_optimizer(function: ast.expr) -> bool:
    """Whether `x.step` is that of an optimizer, by its name: `optimizer`, `self.optim`, `opt`."""
    if not isinstance(function, ast.Attribute):
        return False
    owner = function.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return any(name.startswith(known) or name.endswith(known) for known in _OPTIMIZERS)
