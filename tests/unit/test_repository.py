"""The repository keeps its own rules: short files, good names, nothing that runs what it is given."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from elasticdl.spec import options

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "elasticdl"
GENERATED = SOURCE / "rpc" / "elasticdl_pb2.py"
MODULES = [path for path in sorted(SOURCE.rglob("*.py")) if path != GENERATED]

MOST_LINES = 320
BANNED_NAMES = {"utils", "common", "helpers", "misc", "base", "core", "types", "constants", "manager", "handler"}
BANNED_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
BANNED_CALLS = {"eval", "exec", "os.system", "os.popen", "torch.load", "torch.save", "yaml.unsafe_load"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    return [node.module.partition(".")[0]] if isinstance(node, ast.ImportFrom) and node.module else []


def complaints(source: str) -> list[str]:
    """What in `source` runs or rebuilds whatever it is given."""
    found = []
    for node in ast.walk(ast.parse(source)):
        found += [f"line {node.lineno}: import {name}" for name in imported(node) if name in BANNED_IMPORTS]  # type: ignore[attr-defined]
        if not isinstance(node, ast.Call):
            continue
        if dotted(node.func) in BANNED_CALLS:
            found.append(f"line {node.lineno}: {dotted(node.func)}()")
        if dotted(node.func) == "yaml.load" and not any(keyword.arg == "Loader" for keyword in node.keywords):
            found.append(f"line {node.lineno}: yaml.load() without a safe loader")
        for keyword in node.keywords:
            is_true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            if keyword.arg in ("shell", "allow_pickle") and is_true:
                found.append(f"line {node.lineno}: {keyword.arg}=True")
    return found


def test_no_module_is_longer_than_a_person_reads_at_once() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in MODULES}

    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_module_is_named_by_what_it_is_not() -> None:
    assert [name_of(path) for path in MODULES if BANNED_NAMES & {path.stem, path.parent.name}] == []


def test_nothing_in_the_package_runs_what_it_is_given() -> None:
    found = {name_of(path): complaints(path.read_text()) for path in MODULES}

    assert {name: what for name, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from pickle import loads", "eval(text)", "os.system(text)", "run(text, shell=True)"],
)
def test_the_search_for_what_runs_what_it_is_given_finds_it(source: str) -> None:
    assert complaints(source)


@pytest.mark.skipif(find_spec("grpc_tools") is None, reason="grpcio-tools is not installed")
def test_the_generated_messages_are_those_of_the_proto(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", f"--python_out={tmp_path}"]
    subprocess.run([*argv, "elasticdl.proto"], check=True)

    # The serialized descriptor and what hangs on it; the head names the version of whoever generated it.
    def body(path: Path) -> str:
        return path.read_text().partition("DESCRIPTOR = ")[2]

    assert body(tmp_path / GENERATED.name) == body(GENERATED), "run `make proto`"


@pytest.mark.parametrize("option", options.OPTIONS, ids=lambda option: option.name)
def test_every_option_stands_in_the_reference_with_its_commands_and_its_words(option: options.Option) -> None:
    lines = (ROOT / "docs" / "cli.md").read_text().splitlines()
    described = [line for line in lines if line.startswith(f"| `{option.flag}`") and f"`{option.path}`" in line]
    commands = "all" if option.commands == options.ALL else ", ".join(option.commands)

    assert len(described) == 1
    assert f"| {commands} |" in described[0]
    assert option.help.replace("<", "‹").replace(">", "›") in described[0]
