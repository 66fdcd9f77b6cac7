"""What will be built, decided before anything is: names, extras, Dockerfiles."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import elasticdl
from elasticdl.errors import SpecError
from elasticdl.image import pinning
from elasticdl.image.survey import REQUIREMENTS, Survey

EXTRAS = ("torch", "tensorflow", "kubernetes", "operator", "scheduler")
MODEL_ZOO = "/model_zoo"
USER = "10001:10001"
# Where packages come from, not what is in the image: these make no other image.
SOURCES_OF_PACKAGES = ("PIP_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT")


@dataclass(frozen=True, slots=True)
class Shipped:
    """The image of this version of ElasticDL."""

    name: str
    arguments: Mapping[str, str]


def shipped(extras: Sequence[str], arguments: Mapping[str, str], name: str = "") -> Shipped:
    """The image with these extras, and Kubernetes, which every pod needs; each combination has a name of its own."""
    for extra in extras:
        if extra not in EXTRAS:
            raise SpecError(f"--extra {extra}: expected one of {', '.join(EXTRAS)}; other packages: {REQUIREMENTS}")
    # The native core in the wheel is for this Python and no other.
    python = pinning.default()
    every = [extra for extra in EXTRAS if extra in {*extras, "kubernetes"}]
    given = {key: value for key, value in arguments.items() if key not in (*SOURCES_OF_PACKAGES, pinning.UNPINNED)}
    rest = [extra for extra in every if extra != "kubernetes"]
    words = [elasticdl.__version__, *(["kubernetes"] if not rest else rest if rest != ["torch"] else [])]
    if given:
        words.append(hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:8])
    return Shipped(name or f"elasticdl:{'-'.join(words)}", {"BASE": python, "EXTRAS": ",".join(every), **arguments})


def build_arguments(pairs: Sequence[str]) -> dict[str, str]:
    """`A=B` of --build-arg. Raises SpecError."""
    for pair in pairs:
        if not pair.partition("=")[0].isidentifier() or "=" not in pair:
            raise SpecError(f"--build-arg {pair!r}: expected NAME=VALUE, such as TORCH_INDEX=https://…")
        if pair.startswith("PIP_EXTRA_INDEX_URL="):
            raise SpecError(
                "--build-arg PIP_EXTRA_INDEX_URL: with two indexes whoever puts a higher version into one of them is "
                "installed; name one that has all packages: --build-arg PIP_INDEX_URL=https://…"
            )
        if re.search(r"://[^/\s]+@", pair):
            raise SpecError(
                f"--build-arg {pair.partition('=')[0]} holds a password, and everyone with the image could read it; "
                "mount a pip.conf while building instead: -- --volume ~/.config/pip/pip.conf:/etc/pip.conf:ro"
            )
    return {pair.partition("=")[0]: pair.partition("=")[2] for pair in pairs}


def dockerfile(base: str, found: Survey) -> str:
    """An image with a model directory on top of `base`: its packages first, as they change less often."""
    lines = [f"FROM {base}", "USER 0:0"]
    if found.has_requirements:
        lines += [f"ARG {name}" for name in SOURCES_OF_PACKAGES]
        lines += [
            f"COPY {REQUIREMENTS} {MODEL_ZOO}/",
            f"RUN python -m pip install --no-cache-dir --requirement {MODEL_ZOO}/{REQUIREMENTS}",
        ]
    lines += [f"COPY --chown={USER} . {MODEL_ZOO}/", "WORKDIR /", f"USER {USER}"]
    return "\n".join(lines) + "\n"


def next_command(image: str, found: Survey) -> str:
    """What to type to train with the image."""
    definition = found.definition or "MODULE.FUNCTION"
    return f"elasticdl train --image_name={image} --model_zoo=model_zoo --model_def={definition} --training_data=DATA"
