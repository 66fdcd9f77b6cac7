"""What the source of a training script says before it runs: does it join, and what does it take from torch.distributed?

Nothing is imported or run. Modules that lie beside the script are read, too; of installed ones only their requirements
are known. "Never joins" is said only where it is certain; everything dynamic is left to the worker.
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

from elasticdl.errors import SpecError
from elasticdl.model import source

GUIDE = "docs/bring-your-own-code.md"
MOST_FILES = 200  # a script with more modules beside it is taken on trust

# A reference to one of these is a script that joins.
_JOINS = ("elasticdl.torch.join", "elasticdl.lightning", "elasticdl.huggingface", "elasticdl.accelerate")
_DYNAMIC = frozenset({"__import__", "exec", "eval", "importlib.import_module", "runpy.run_path", "runpy.run_module"})
# What torchrun scripts use: the torch API itself, or trainers that find RANK and WORLD_SIZE in the environment.
_DISTRIBUTED = (
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


class Joining(Enum):
    """Whether a script takes part in the job by itself."""

    JOINS = auto()
    NEVER = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Reference:
    """A dotted name that the source uses, as its imports resolve it: `torch.distributed.init_process_group`."""

    name: str
    file: Path
    line: int

    @property
    def place(self) -> str:
        return f"{self.file.name}:{self.line}"


@dataclass(frozen=True, slots=True)
class ScriptSource:
    """All that was read of a script and the modules beside it."""

    path: Path
    tree: ast.Module
    names: Mapping[str, str]  # what each name that the script imports stands for
    references: tuple[Reference, ...]
    is_complete: bool  # False: something else may be imported or run
    top_level_joins: tuple[int, ...]  # lines of the script where `join` is called unconditionally

    @property
    def joining(self) -> Joining:
        if any(_is_within(reference.name, _JOINS) for reference in self.references):
            return Joining.JOINS
        return Joining.NEVER if self.is_complete else Joining.UNKNOWN

    def resolve(self, node: ast.expr) -> str:
        """The dotted name of an expression of the script, by its imports; "" where it has none."""
        top, _, rest = _dotted(node).partition(".")
        resolved = self.names.get(top, top)
        return f"{resolved}.{rest}" if rest else resolved

    @property
    def distributed(self) -> tuple[Reference, ...]:
        """References to the API of torchrun scripts."""
        return tuple(reference for reference in self.references if _is_within(reference.name, _DISTRIBUTED))


def may_use_elasticdl(module: str) -> bool:
    """Whether an installed top-level module may call ElasticDL: its distribution requires it, or nobody knows."""
    if module in sys.stdlib_module_names:
        return False
    if module == "elasticdl":
        return True  # by a name that is not known here, or by one that a star import brings
    names = metadata.packages_distributions().get(module)
    if not names:
        return True
    requirements = [line for name in names for line in metadata.requires(name) or ()]
    return any(line.lower().startswith("elasticdl") for line in requirements)


def read_script(path: Path, is_unsure_of: Callable[[str], bool] = may_use_elasticdl) -> ScriptSource:
    """Read the script and every module beside it that it imports; ModelError where it is not Python."""
    root = path.parent
    trees, is_complete = _read_modules(path)
    references: list[Reference] = []
    modules: set[str] = set()
    for file, tree in trees.items():
        references += _references(tree, _imported_names(tree, file, root), file)
        modules |= {module for module in _imported_modules(tree, file, root) if not _local_files(module, root)}
    is_dynamic = any(reference.name in _DYNAMIC for reference in references)
    tops = {module.partition(".")[0] for module in modules}
    is_complete = is_complete and not is_dynamic and not any(is_unsure_of(top) for top in sorted(tops))
    names = _imported_names(trees[path], path, root)
    joins = _top_level_joins(trees[path], names)
    return ScriptSource(path, trees[path], names, tuple(references), is_complete, joins)


def check_joins(script: ScriptSource) -> None:
    """Raise SpecError where the script certainly never joins, or joins twice."""
    name = script.path.name
    if len(script.top_level_joins) > 1:
        first, second = script.top_level_joins[:2]
        raise SpecError(
            f"{script.path}: calls elasticdl.torch.join in line {first} and again in line {second}; a script is one "
            "training run: make two scripts of it"
        )
    if script.joining is not Joining.NEVER:
        return
    expected = f"{script.path}: never calls elasticdl.torch.join, so each worker would train everything by itself"
    if script.distributed:
        used = script.distributed[0]
        raise SpecError(
            f"{expected}. It uses {used.name} ({used.place}): run it unmodified with "
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
    """Raise SpecError where a script for `--compat ddp` joins by itself."""
    joined = next((one for one in script.references if _is_within(one.name, _JOINS)), None)
    if joined is not None:
        raise SpecError(
            f"--compat ddp: {script.path} uses {joined.name} ({joined.place}), so it is elastic without restarts; "
            "leave out --compat"
        )


# ---- inside


def check_in_worker(path: Path, check: Callable[[ScriptSource], None], *, is_in_image: bool) -> None:
    """Raise SpecError where the script is not on this machine. One in an image could not be checked before: do so."""
    if not path.is_file():
        raise SpecError(f"script.path: {path} is no file on {socket.gethostname()}; name one that is there")
    if is_in_image:
        check(read_script(path))


def _read_modules(path: Path) -> tuple[dict[Path, ast.Module], bool]:
    """The script and the modules beside it that it imports, and whether these are all."""
    trees = {path: source.parse(path)}
    pending = [path]
    while pending:
        file = pending.pop()
        for module in _imported_modules(trees[file], file, path.parent):
            for found in _local_files(module, path.parent):
                if found in trees:
                    continue
                if len(trees) >= MOST_FILES:
                    return trees, False
                trees[found] = source.parse(found)
                pending.append(found)
    return trees, True


def _is_within(name: str, known: tuple[str, ...]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in known)


def _imported_names(tree: ast.Module, file: Path, root: Path) -> dict[str, str]:
    """What each imported name stands for, wherever in the file the import is."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names |= {alias.asname: alias.name} if alias.asname else {top: top}
        elif isinstance(node, ast.ImportFrom):
            module = _module_of(node, file, root)
            names |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in node.names}
    return names


def _imported_modules(tree: ast.Module, file: Path, root: Path) -> Iterator[str]:
    """Modules a file imports; of `from a import b` both a and a.b, which may be one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _module_of(node, file, root)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _module_of(node: ast.ImportFrom, file: Path, root: Path) -> str:
    """The absolute name of the module that `node` imports from."""
    if not node.level:
        return node.module or ""
    package = file.parent.relative_to(root).parts
    above = package[: len(package) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


def _local_files(module: str, root: Path) -> list[Path]:
    """The files beside the script that importing `module` runs; none where it is not there."""
    files: list[Path] = []
    place = root
    for part in module.split("."):
        if not part:
            return files
        place = place / part
        candidates = [place / "__init__.py", place.with_suffix(".py")]
        files += [file for file in candidates if file.is_file()][:1]
    return files


def _references(tree: ast.Module, names: dict[str, str], file: Path) -> Iterator[Reference]:
    """Every dotted name the file uses that begins with an imported name, or is a built-in function."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner:
            top, _, rest = _dotted(node).partition(".")
            resolved = names.get(top, top if top in _DYNAMIC else "")
            if resolved:
                yield Reference(f"{resolved}.{rest}" if rest else resolved, file, node.lineno)


def _dotted(node: ast.expr) -> str:
    """`a.b.c`; "" where it does not begin with a name, such as a call's result."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def _top_level_joins(tree: ast.Module, names: dict[str, str]) -> tuple[int, ...]:
    """Lines of statements at the very top level, hence always run, that call `join`."""
    lines = []
    for statement in tree.body:
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr) else None
        if isinstance(value, ast.Call):
            top, _, rest = _dotted(value.func).partition(".")
            if f"{names.get(top, '')}.{rest}".strip(".") == "elasticdl.torch.join":
                lines.append(statement.lineno)
    return tuple(lines)
