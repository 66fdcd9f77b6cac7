"""Reads a training script before it runs.

Finds whether the script joins, what it uses of torch.distributed, and which of its lines to change.
"""

from __future__ import annotations

import ast
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from elasticdl.errors import SpecError
from elasticdl.model import source

GUIDE = "docs/bring-your-own-code.md"
MAX_FILES = 200  # a script with more modules beside it is not checked completely

# A reference to one of these is a script that joins.
_JOIN_NAMES = ("elasticdl.torch.join", "elasticdl.lightning", "elasticdl.huggingface", "elasticdl.accelerate")
_DYNAMIC_NAMES = frozenset(
    {"__import__", "exec", "eval", "importlib.import_module", "runpy.run_path", "runpy.run_module"}
)
# Names that torchrun scripts use: the API of torch, or trainers that read RANK and WORLD_SIZE from the environment.
_DISTRIBUTED_NAMES = (
    "torch.distributed",
    "torch.nn.parallel.DistributedDataParallel",
    "torch.utils.data.distributed",
    "torch.utils.data.DistributedSampler",
    "lightning.Trainer",
    "lightning.pytorch.Trainer",
    "pytorch_lightning.Trainer",
    "transformers.Trainer",
    "accelerate.Accelerator",
)


class JoinStatus(Enum):
    """Whether a script calls `join`, and so takes part in the job by itself."""

    JOINS = auto()
    NEVER = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class NameReference:
    """A dotted name that the source uses, as its imports resolve it: `torch.distributed.init_process_group`."""

    name: str
    file: Path
    line: int

    @property
    def location(self) -> str:
        return f"{self.file.name}:{self.line}"


@dataclass(frozen=True, slots=True)
class ScriptSource:
    """The source of a script and of the modules beside it that it imports."""

    path: Path
    tree: ast.Module
    names: Mapping[str, str]  # what each name that the script imports stands for
    references: tuple[NameReference, ...]
    is_complete: bool  # False: code that was not read may be imported or run
    top_level_joins: tuple[int, ...]  # lines of the script where `join` is called unconditionally

    @property
    def join_status(self) -> JoinStatus:
        if any(_is_within(reference.name, _JOIN_NAMES) for reference in self.references):
            return JoinStatus.JOINS
        return JoinStatus.NEVER if self.is_complete else JoinStatus.UNKNOWN

    def resolve(self, node: ast.expr) -> str:
        """The dotted name of an expression of the script, by its imports; "" if it has none."""
        top, _, tail = _dotted_name(node).partition(".")
        resolved = self.names.get(top, top)
        return f"{resolved}.{tail}" if tail else resolved

    @property
    def distributed_references(self) -> tuple[NameReference, ...]:
        """References to the API of torchrun scripts."""
        return tuple(reference for reference in self.references if _is_within(reference.name, _DISTRIBUTED_NAMES))


def may_use_elasticdl(module: str) -> bool:
    """Whether an installed top-level module may call ElasticDL: its distribution requires it, or is unknown."""
    if module in sys.stdlib_module_names:
        return False
    if module == "elasticdl":
        return True  # by a name that is unknown here, or that a star import brings
    names = metadata.packages_distributions().get(module)
    if not names:
        return True
    requirements = [line for name in names for line in metadata.requires(name) or ()]
    return any(line.lower().startswith("elasticdl") for line in requirements)


def read_script(path: Path, may_call: Callable[[str], bool] = may_use_elasticdl) -> ScriptSource:
    """Read the script and every module beside it that it imports; ModelError if it is not Python."""
    root = path.parent
    trees, is_complete = _read_modules(path)
    references: list[NameReference] = []
    modules: set[str] = set()
    for file, tree in trees.items():
        references += _find_references(tree, _imported_names(tree, file, root), file)
        modules |= {module for module in _imported_modules(tree, file, root) if not _find_local_files(module, root)}
    is_dynamic = any(reference.name in _DYNAMIC_NAMES for reference in references)
    tops = {module.partition(".")[0] for module in modules}
    is_complete = is_complete and not is_dynamic and not any(may_call(top) for top in sorted(tops))
    names = _imported_names(trees[path], path, root)
    joins = _find_top_level_joins(trees[path], names)
    return ScriptSource(path, trees[path], names, tuple(references), is_complete, joins)


def check_joins(script: ScriptSource) -> None:
    """Raise SpecError if the script certainly never joins, or joins twice."""
    name = script.path.name
    if len(script.top_level_joins) > 1:
        first, second = script.top_level_joins[:2]
        raise SpecError(
            f"{script.path}: calls elasticdl.torch.join in line {first} and again in line {second}; a script is one "
            "training run: make two scripts of it"
        )
    if script.join_status is not JoinStatus.NEVER:
        return
    expected = f"{script.path}: never calls elasticdl.torch.join, so each worker would train everything by itself"
    if script.distributed_references:
        used = script.distributed_references[0]
        raise SpecError(
            f"{expected}. It uses {used.name} ({used.location}): run it unmodified with "
            f"`elasticdl run --compat ddp {name}`, or change a few lines to make it elastic without restarts: {GUIDE}"
        )
    raise SpecError(
        f"{expected}. Add these lines, see {GUIDE}:\n"
        "    import elasticdl.torch as elastic\n"
        "    for step in elastic.join(model, optimizer, dataset, global_batch_size=64, epochs=4):\n"
        "        for features, labels in step:\n"
        "            step.backward(loss_function(model(features), labels))"
    )


def check_unmodified(script: ScriptSource) -> None:
    """Raise SpecError if a script for `--compat ddp` joins by itself."""
    reference = next((used for used in script.references if _is_within(used.name, _JOIN_NAMES)), None)
    if reference is not None:
        raise SpecError(
            f"--compat ddp: {script.path} uses {reference.name} ({reference.location}), so it is elastic without "
            "restarts; leave out --compat"
        )


def check_in_worker(path: Path, check: Callable[[ScriptSource], None], *, is_in_image: bool) -> None:
    """Raise SpecError if the script is not on this machine. A script in an image is checked only here."""
    if not path.is_file():
        raise SpecError(f"script.path: {path} is no file on {socket.gethostname()}; name one that exists there")
    if is_in_image:
        check(read_script(path))


def _read_modules(path: Path) -> tuple[dict[Path, ast.Module], bool]:
    """The script and the modules beside it that it imports, and whether that is all of them."""
    trees = {path: source.parse_source(path)}
    pending = [path]
    while pending:
        file = pending.pop()
        for module in _imported_modules(trees[file], file, path.parent):
            for imported in _find_local_files(module, path.parent):
                if imported in trees:
                    continue
                if len(trees) >= MAX_FILES:
                    return trees, False
                trees[imported] = source.parse_source(imported)
                pending.append(imported)
    return trees, True


def _is_within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _imported_names(tree: ast.Module, file: Path, root: Path) -> dict[str, str]:
    """The dotted name of each imported name, wherever in the file the import is."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names |= {alias.asname: alias.name} if alias.asname else {top: top}
        elif isinstance(node, ast.ImportFrom):
            module = _resolve_module(node, file, root)
            names |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in node.names}
    return names


def _imported_modules(tree: ast.Module, file: Path, root: Path) -> Iterator[str]:
    """The modules that a file imports; for `from a import b` both a and a.b, which may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _resolve_module(node, file, root)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _resolve_module(node: ast.ImportFrom, file: Path, root: Path) -> str:
    """The absolute name of the module that `node` imports from."""
    if not node.level:
        return node.module or ""
    package = file.parent.relative_to(root).parts
    above = package[: len(package) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


def _find_local_files(module: str, root: Path) -> list[Path]:
    """The files beside the script that importing `module` runs; none if it is not beside the script."""
    files: list[Path] = []
    path = root
    for part in module.split("."):
        if not part:
            return files
        path = path / part
        candidates = [path / "__init__.py", path.with_suffix(".py")]
        files += [file for file in candidates if file.is_file()][:1]
    return files


def _find_references(tree: ast.Module, names: dict[str, str], file: Path) -> Iterator[NameReference]:
    """Every dotted name in the file that begins with an imported name, or is a dynamic built-in function."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner:
            top, _, tail = _dotted_name(node).partition(".")
            resolved = names.get(top, top if top in _DYNAMIC_NAMES else "")
            if resolved:
                yield NameReference(f"{resolved}.{tail}" if tail else resolved, file, node.lineno)


def _dotted_name(node: ast.expr) -> str:
    """`a.b.c`; "" if it does not begin with a name, such as the result of a call."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted_name(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def _find_top_level_joins(tree: ast.Module, names: dict[str, str]) -> tuple[int, ...]:
    """Lines of statements at the very top level, which always run, that call `join`."""
    lines = []
    for statement in tree.body:
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr) else None
        if isinstance(value, ast.Call):
            top, _, tail = _dotted_name(value.func).partition(".")
            if f"{names.get(top, '')}.{tail}".strip(".") == "elasticdl.torch.join":
                lines.append(statement.lineno)
    return tuple(lines)


MAX_ADVICE_LINES = 16  # a user with a long script reads the guide

_JOIN_EXAMPLE = "job = elastic.join(model, optimizer, dataset, global_batch_size=…, epochs=…)"
# By the last part of the name that is called.
_ADVICE = {
    "init_process_group": "leave out: join connects the workers",
    "destroy_process_group": "leave out: join ends with the last step",
    "DistributedDataParallel": "leave out: join takes the plain model",
    "FullyShardedDataParallel": "leave out: join takes the plain model, whole in every worker",
    "fully_shard": "leave out: join takes the plain model, whole in every worker",
    "DistributedSampler": "leave out: join deals the records out",
    "DataLoader": f"{_JOIN_EXAMPLE}; then `for step in job:` and `for features, labels in step:` for the loops",
    "set_epoch": "leave out: join shuffles each epoch",
    "backward": "step.backward(loss)",
    "zero_grad": "leave out: the step does it",
    "step": "leave out: the step of the job calls the optimizer once for all workers",
    "get_rank": "after the loop, job.is_first says which worker saves the result",
}
_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel")
_UNWRAPPED = "without `.module`: join does not wrap the model"
_OPTIMIZERS = ("optim", "opt")


class LineChange(NamedTuple):
    """One line of the script and what to write instead."""

    line: int
    code: str
    instead: str


def list_changes(script: ScriptSource) -> list[LineChange]:
    """The lines to change, in order; one change for each line."""
    lines = script.path.read_text(errors="replace").splitlines()
    calls = sorted((node for node in ast.walk(script.tree) if isinstance(node, ast.Call)), key=lambda node: node.lineno)
    loader = _training_loader(script, calls)
    changes: dict[int, LineChange] = {}
    for node in calls:
        name = _called_name(script, node)
        is_relevant = name in _ADVICE and (name != "step" or _is_optimizer(node.func))
        if is_relevant and (name != "DataLoader" or node is loader):
            code = lines[node.lineno - 1].strip()
            changes.setdefault(node.lineno, LineChange(node.lineno, code, _ADVICE[name]))
    if any(_called_name(script, node) in _WRAPPERS for node in calls):
        for inner in ast.walk(script.tree):
            if isinstance(inner, ast.Attribute) and inner.attr == "module":
                code = lines[inner.lineno - 1].strip()
                changes.setdefault(inner.lineno, LineChange(inner.lineno, code, _UNWRAPPED))
    return sorted(changes.values())


def advise_port(script: ScriptSource) -> list[str]:
    """Advice to the user at submission: what happens to the script, and what would make it elastic."""
    name = script.path.name
    restarts = (
        f"{name} runs as under torchrun: whenever a worker comes, goes or dies it is ended and started again, and "
        "resumes from its own checkpoint"
    )
    changes = list_changes(script)
    if not changes:
        return [f"{restarts}; {GUIDE} shows how a script becomes elastic without restarts"]
    width = max(len(change.code[:60]) for change in changes[:MAX_ADVICE_LINES])
    shown = [
        f"  {name}:{change.line:<4} {change.code[:60]:<{width}}  → {change.instead}"
        for change in changes[:MAX_ADVICE_LINES]
    ]
    more = [f"  and {len(changes) - MAX_ADVICE_LINES} more"] if len(changes) > MAX_ADVICE_LINES else []
    heading = f"these lines would make it elastic without restarts ({GUIDE}):"
    return [restarts, "\n".join([heading, *shown, *more])]


def _called_name(script: ScriptSource, node: ast.Call) -> str:
    """The last part of the name that is called, whatever the script imports it as."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return script.resolve(node.func).rpartition(".")[2]


def _training_loader(script: ScriptSource, calls: list[ast.Call]) -> ast.Call | None:
    """The loader that join replaces: the first with a sampler, else the first."""
    loaders = [node for node in calls if _called_name(script, node) == "DataLoader"]
    sampled = [node for node in loaders if any(keyword.arg == "sampler" for keyword in node.keywords)]
    return next(iter([*sampled, *loaders]), None)


def _is_optimizer(function: ast.expr) -> bool:
    """Whether the x of `x.step` is an optimizer, by its name: `optimizer`, `self.optim`, `opt`."""
    if not isinstance(function, ast.Attribute):
        return False
    owner = function.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return any(name.startswith(stem) or name.endswith(stem) for stem in _OPTIMIZERS)
