"""The repository keeps its own rules: short files, good names, no code that executes its input."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

import elasticdl
from elasticdl.spec import options
from elasticdl.spec.option import ALL_COMMANDS, Option

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "elasticdl"
GENERATED = SOURCE / "rpc" / "elasticdl_pb2.py"
MODULES = [path for path in sorted(SOURCE.rglob("*.py")) if path != GENERATED]

MAX_LINES = 650  # one concept whole in one file, usually 100 to 400 lines; a table may be longer
MAX_FILES = 20  # in one folder
BANNED_NAMES = {"utils", "common", "helpers", "misc"}
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
    """Code in `source` that executes or unpickles its input."""
    messages = []
    for node in ast.walk(ast.parse(source)):
        messages += [f"line {node.lineno}: import {name}" for name in imported(node) if name in BANNED_IMPORTS]  # type: ignore[attr-defined]
        if not isinstance(node, ast.Call):
            continue
        if dotted(node.func) in BANNED_CALLS:
            messages.append(f"line {node.lineno}: {dotted(node.func)}()")
        if dotted(node.func) == "yaml.load" and not any(keyword.arg == "Loader" for keyword in node.keywords):
            messages.append(f"line {node.lineno}: yaml.load() without a safe loader")
        for keyword in node.keywords:
            is_true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            if keyword.arg in ("shell", "allow_pickle") and is_true:
                messages.append(f"line {node.lineno}: {keyword.arg}=True")
    return messages


def is_shadowed(node: ast.AST) -> bool:
    """Whether a command line starts a module of ElasticDL with the working directory on Python's path."""
    if not isinstance(node, ast.List | ast.Tuple):
        return False
    words = [part.value if isinstance(part, ast.Constant) else None for part in node.elts]
    index = words.index("-m") if "-m" in words else 0
    return index > 0 and words[index + 1 : index + 2] != ["pip"] and words[index - 1] != "-P"


def test_every_process_starts_without_the_working_directory_on_its_path() -> None:
    shadowed = [
        f"{name_of(path)} line {node.lineno}"  # type: ignore[attr-defined]
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if is_shadowed(node)
    ]

    assert not shadowed, "start Python with -P, or a random.py in the working directory breaks the job"


def test_no_module_is_longer_than_a_person_reads_at_once() -> None:
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in MODULES}

    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


def test_no_folder_holds_more_files_than_a_newcomer_can_survey() -> None:
    folders = Counter(path.parent for path in MODULES)

    assert {name_of(folder): count for folder, count in folders.items() if count > MAX_FILES} == {}


def ways_through_the_house() -> dict[str, list[str]]:
    """The files that each of the four ways of ARCHITECTURE.md passes."""
    sections = re.split(r"^### (?=\d\.)", (ROOT / "ARCHITECTURE.md").read_text(), flags=re.MULTILINE)[1:]
    return {
        section.partition("\n")[0]: re.findall(r"^\| \d+ \| `([\w/]+\.py)`", section, re.MULTILINE)
        for section in sections
    }


def test_the_four_ways_through_the_house_are_short_and_pass_files_that_exist() -> None:
    ways = ways_through_the_house()

    assert [path for files in ways.values() for path in files if not (SOURCE / path).is_file()] == []
    # Half of what each way passed before packages were laid out by what changes together.
    limits = {"1": 50, "2": 16, "3": 22, "4": 30}
    assert {way: len(files) for way, files in ways.items() if not 0 < len(files) <= limits[way[0]]} == {}
    assert len(ways) == len(limits)


def test_architecture_names_every_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    packages = [path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()]

    assert [name for name in packages if f"`{name}/`" not in text] == []


def test_no_module_is_named_by_what_it_is_not() -> None:
    assert [name_of(path) for path in MODULES if BANNED_NAMES & {path.stem, path.parent.name}] == []


# What a job or a script has on its path before the installed packages: its model zoo, or the script's own directory.
FIRST_ON_A_PATH = [
    *(ROOT / name for name in ("tests/integration", "tests/integration/scripts", "model_zoo", "benchmarks")),
    *(ROOT / "benchmarks" / name for name in ("models", "peers")),
    *(path for path in (ROOT / "examples").iterdir() if path.is_dir()),
]


@cache
def importable_names() -> set[str]:
    """Top-level modules of Python and of the installed distributions."""
    return {*sys.stdlib_module_names, *packages_distributions()}


def hidden_packages(directory: Path) -> set[str]:
    """Names in `directory` that hide a module of Python or of an installed package when it stands first on the path."""
    names = {path.stem for path in directory.iterdir() if path.is_dir() or path.suffix == ".py"}
    return names & importable_names()


def test_no_directory_on_the_path_of_a_job_hides_an_installed_package() -> None:
    assert {name_of(path): hidden for path in FIRST_ON_A_PATH if (hidden := hidden_packages(path))} == {}


def test_the_search_for_hidden_packages_finds_folders_and_modules(tmp_path: Path) -> None:
    (tmp_path / "numpy").mkdir()
    (tmp_path / "random.py").touch()
    (tmp_path / "tiny.py").touch()

    assert hidden_packages(tmp_path) == {"numpy", "random"}


def test_no_module_executes_its_input() -> None:
    by_module = {name_of(path): complaints(path.read_text()) for path in MODULES}

    assert {name: lines for name, lines in by_module.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from pickle import loads", "eval(text)", "os.system(text)", "run(text, shell=True)"],
)
def test_the_search_for_code_that_executes_its_input_finds_it(source: str) -> None:
    assert complaints(source)


@pytest.mark.skipif(find_spec("grpc_tools") is None, reason="grpcio-tools is not installed")
def test_the_generated_messages_are_those_of_the_proto(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", f"--python_out={tmp_path}"]
    subprocess.run([*argv, "elasticdl.proto"], check=True)

    # The serialized descriptor and the code after it; the head names the version of the generator.
    def body(path: Path) -> str:
        return path.read_text().partition("DESCRIPTOR = ")[2]

    assert body(tmp_path / GENERATED.name) == body(GENERATED), "run `make proto`"


@pytest.mark.parametrize("option", options.OPTIONS, ids=lambda option: option.name)
def test_every_option_is_in_the_reference_with_its_commands_and_its_help(option: Option) -> None:
    lines = (ROOT / "docs" / "cli.md").read_text().splitlines()
    described = [line for line in lines if line.startswith(f"| `{option.flag}`") and f"`{option.path}`" in line]
    commands = "all" if option.commands == ALL_COMMANDS else ", ".join(option.commands)

    assert len(described) == 1
    assert f"| {commands} |" in described[0]
    assert option.help.replace("<", "‹").replace(">", "›") in described[0]


# Another, older package has the name on the public index: `pip install elasticdl` would bring that one.
BY_NAME = re.compile(r"""pip3? install[^`\n]*?[ \t"']elasticdl(?=["'`\s\[=<>~.,;)]|$)""")


@pytest.mark.parametrize(
    "text",
    [
        "pip install elasticdl",
        "pip install 'elasticdl[torch]'",
        "`pip install elasticdl`, or",
        "(pip install --force-reinstall --no-deps elasticdl)",
        "pip install elasticdl==0.3.0",
    ],
)
def test_the_search_for_installing_by_name_finds_it(text: str) -> None:
    assert BY_NAME.search(text)


@pytest.mark.parametrize(
    "text",
    ["pip install '.[torch]'", "pip install 'dist/elasticdl-0.3.0-cp311.whl[torch]'", "pip install ./elasticdl/"],
)
def test_the_search_for_installing_by_name_leaves_clones_and_wheels_alone(text: str) -> None:
    assert not BY_NAME.search(text)


def test_nothing_sends_users_to_the_package_of_that_name_on_the_index() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = [ROOT / name for name in listed.split("\0") if name and (ROOT / name).suffix not in {".png", ".gif"}]
    installs = {
        name_of(path): BY_NAME.findall(path.read_text(errors="replace"))
        for path in texts
        if path.is_file() and path != Path(__file__)
    }

    assert {name: lines for name, lines in installs.items() if lines} == {}


def overlong(document: str) -> list[str]:
    """Lines of prose over 100 columns and others over 120; a row of a table may be as long as it is."""
    messages, is_code = [], False
    for number, line in enumerate(document.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        limit = 120 if is_code else 100
        if len(line) > limit and not line.lstrip().startswith("|"):
            messages.append(f"line {number}: {len(line)} characters, {limit} at most")
    return messages


def test_documents_are_wrapped() -> None:
    lines = {name_of(path): overlong(path.read_text()) for path in documents()}

    assert {name: messages for name, messages in lines.items() if messages} == {}


@pytest.mark.parametrize(
    ("document", "count"),
    [
        ("a " * 51, 1),
        ("| " + "a " * 100 + "|", 0),
        ("```\n" + "a " * 60 + "\n```\n", 0),
        ("```\n" + "a " * 61 + "\n```\n" + "b" * 101, 2),
    ],
)
def test_the_search_for_long_lines_ignores_tables_and_allows_longer_code(document: str, count: int) -> None:
    assert len(overlong(document)) == count


def documents() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def without_code(document: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", document, flags=re.DOTALL | re.MULTILINE)


def anchors(document: str) -> set[str]:
    """The anchors of the headings of `document`, as GitHub and the site have them."""
    headings = re.findall(r"^#+ (.+)$", without_code(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path: Path) -> list[str]:
    broken = []
    text = re.sub(r"(`+)(?!`).*?\1", "`code`", without_code(path.read_text()))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        if "://" in name or name.startswith("mailto:"):
            continue
        target = path.parent / name if name else path
        is_document = target.suffix == ".md" and target.is_file()
        if not target.exists() or (anchor and (not is_document or anchor not in anchors(target.read_text()))):
            broken.append(link)
    return broken


def test_links_between_documents_have_targets() -> None:
    broken = {name_of(path): broken_links(path) for path in documents()}

    assert {name: links for name, links in broken.items() if links} == {}


def test_the_search_for_broken_links_finds_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A *b*: c\n\n[a](page.md#a-b-c) [b](#d) [c](other.md)\n\n```\n[d](none.md)\n```\n`[e](none.md)`\n"
    )

    assert broken_links(page) == ["#d", "other.md"]


def missing_imports(document: str) -> list[str]:
    """Names that the Python of `document` imports from ElasticDL and that do not exist, found without importing."""
    missing = []
    code = "".join(re.findall(r"```(?:python|py)\n(.*?)```", document, re.DOTALL))
    for module, names in re.findall(r"^\s*from (elasticdl[\w.]*) import ([\w, ]+)", code, re.MULTILINE):
        path = SOURCE.parent / Path(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        source = path.read_text() if path.is_file() else ""
        missing += [f"{module}.{name}" for name in re.findall(r"\w+", names) if not re.search(rf"\b{name}\b", source)]
    return missing


def test_documents_import_existing_names() -> None:
    guides = [path for path in documents() if path.parent.name != "design"]
    missing = {name_of(path): missing_imports(path.read_text()) for path in guides}

    assert {name: imports for name, imports in missing.items() if imports} == {}


def test_the_search_for_missing_imports_finds_them() -> None:
    block = "```python\nfrom elasticdl.errors import SpecError, Nonsense\nfrom elasticdl.nowhere import x\n```\n"

    assert missing_imports(block) == ["elasticdl.errors.Nonsense", "elasticdl.nowhere.x"]


def test_the_readme_is_short() -> None:
    assert len(re.findall(r"\w+", (ROOT / "README.md").read_text())) <= 1000


def test_the_results_of_the_readme_are_those_of_benchmarks() -> None:
    results = (ROOT / "README.md").read_text().partition("## Results")[2].partition("\n## ")[0]
    rows = [line for line in results.splitlines() if line.startswith("| [")]
    measured = (ROOT / "benchmarks" / "README.md").read_text()

    assert len(rows) == 3
    assert [number for row in rows for number in re.findall(r"\d+\.\d{3,}", row) if f" {number} " not in measured] == []


def test_all_files_state_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((ROOT / "deploy/chart/Chart.yaml").read_text())
    definition = yaml.safe_load((ROOT / "deploy/crd/elasticjobs.yaml").read_text())

    assert project == elasticdl.__version__ == chart["appVersion"] == chart["version"]
    assert definition["metadata"]["labels"]["elasticdl.org/version"] == project
    assert f"image: elasticdl:{project}" in (ROOT / "deploy/manifests/operator.yaml").read_text()


def test_the_version_sorts_after_that_of_the_older_package() -> None:
    assert Version(elasticdl.__version__) > Version("0.2.0")
