"""The optional dependencies of ElasticDL, and the command that installs them.

The name `elasticdl` on the public package index belongs to an older project, so no command here installs by that name:
it names the clone or the wheel that this installation came from, or the requirements of the extra themselves.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlparse

from elasticdl.errors import SpecError

DISTRIBUTION = "elasticdl"

_MARKER = re.compile(r"""extra\s*==\s*["']([\w.-]+)["']""")


# The smallest extra with a package, by the module that the package is imported as.
_EXTRAS_OF_MODULES = {
    "duckdb": "features",
    "keras": "tensorflow",
    "kopf": "operator",
    "kubernetes": "kubernetes",
    "matplotlib": "figures",
    "odps": "maxcompute",
    "optuna": "search",
    "PIL": "images",
    "psycopg": "postgres",
    "pyarrow": "parquet",
    "safetensors": "torch",
    "scipy": "scheduler",
    "tensorflow": "tensorflow",
    "torch": "torch",
    "websocket": "kubernetes",
    "zmq": "torch",
}


@dataclass(frozen=True, slots=True)
class InstallOrigin:
    """The clone or file that ElasticDL was installed from, if it still exists, and the requirements of its extras."""

    path: Path | None = None  # the root of a clone, or the file of a wheel or an sdist
    editable: bool = False
    requirements: tuple[str, ...] = ()  # as `Requires-Dist` of the package's metadata states them


def check_module(purpose: str, module: str, extra: str = "") -> None:
    """Raises SpecError, with the command that installs it, if a module that `purpose` needs is not installed."""
    if find_spec(module) is None:
        raise missing_module_error(purpose, module, extra)


def missing_module_error(purpose: str, module: str, extra: str = "") -> SpecError:
    """The error for a module that is not installed.

    `extra` is named in place of the module's own one if `purpose` needs more of its packages.
    """
    command = install_command(extra or _EXTRAS_OF_MODULES[module])
    return SpecError(f"{purpose} needs {module}, not installed in {sys.prefix}: {command}")


def is_optional_module(module: str) -> bool:
    """Whether an extra of ElasticDL installs the module."""
    return module in _EXTRAS_OF_MODULES


def install_command(*extras: str) -> str:
    """The shell command that adds `extras` to this installation, such as `pip install '.[torch]'` with the full path.

    Works from any directory.
    """
    return format_install_command(find_origin(), extras)


def reinstall_command() -> str:
    """The shell command that builds and installs ElasticDL again, with its native core, and nothing else."""
    origin = find_origin()
    if origin.path is None:
        return "pip install --force-reinstall --no-deps '.' in a clone of ElasticDL, or with the path of its wheel"
    return f"pip install --force-reinstall --no-deps {_pip_target(origin, '')}"


def format_install_command(origin: InstallOrigin, extras: tuple[str, ...]) -> str:
    """The command for an installation of this origin. Pure."""
    if origin.path is not None:
        return f"pip install {_pip_target(origin, '[' + ','.join(extras) + ']')}"
    requirements = [
        requirement.strip()
        for requirement, _, marker in (line.partition(";") for line in origin.requirements)
        if set(_MARKER.findall(marker)) & set(extras)
    ]
    if not requirements:
        return f"pip install '.[{','.join(extras)}]' in a clone of ElasticDL"
    return shlex.join(["pip", "install", *dict.fromkeys(requirements)])


def _pip_target(origin: InstallOrigin, extras: str) -> str:
    return f"{'-e ' if origin.editable else ''}{_quote_word(f'{origin.path}{extras}')}"


def _quote_word(word: str) -> str:
    # Always quoted, because brackets are patterns of the shell.
    return shlex.quote(word) if "'" in word else f"'{word}'"


def find_origin() -> InstallOrigin:
    """Reads the metadata of the installed package; a clone that runs without being installed is recognised, too."""
    clone = Path(__file__).resolve().parents[2]
    if _is_clone(clone):
        return InstallOrigin(clone, editable=True)
    try:
        installed = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return InstallOrigin()
    return parse_origin(installed.read_text("direct_url.json"), tuple(installed.requires or ()))


def parse_origin(direct_url: str | None, requirements: tuple[str, ...]) -> InstallOrigin:
    """The origin as pip records it (PEP 610). It has no path if pip used an index, or the path no longer exists."""
    if not direct_url:
        return InstallOrigin(requirements=requirements)
    document = json.loads(direct_url)
    url = urlparse(str(document.get("url", "")))
    path = Path(unquote(url.path))
    exists = url.scheme == "file" and (_is_clone(path) or (path.suffix == ".whl" and path.is_file()))
    editable = bool((document.get("dir_info") or {}).get("editable"))
    return InstallOrigin(path if exists else None, editable and exists, requirements)


def _is_clone(path: Path) -> bool:
    project = path / "pyproject.toml"
    return project.is_file() and f'name = "{DISTRIBUTION}"' in project.read_text(encoding="utf-8")
