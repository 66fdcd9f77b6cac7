"""Plans a build before anything runs: image names, extras, Dockerfiles."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import elasticdl
from elasticdl.errors import SpecError
from elasticdl.image import pinning
from elasticdl.image.model_directory import REQUIREMENTS, ModelDirectory

_HOST = re.compile(r"(localhost|[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)+|[a-zA-Z0-9.-]+(?=:))(:[0-9]+)?")
_PATH_PART = re.compile(r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_MAX_NAME_LENGTH = 255


def check_image_name(text: str) -> str:
    """`text`, if it is a NAME:TAG that every engine, registry and pod accepts. Raises SpecError with the fix."""
    if "://" in text:
        raise SpecError(f"image {text!r}: a name has no scheme; write {text.partition('://')[2]!r}")
    if "@" in text:
        raise SpecError(f"image {text!r}: a digest is the result of a build and cannot be chosen; write NAME:TAG")
    path, colon, tag = text.rpartition(":")
    if not colon or "/" in tag:
        raise SpecError(
            f"image {text!r}: expected NAME:TAG; write {text}:1, as pods cannot distinguish versions without a tag"
        )
    if not _TAG.fullmatch(tag):
        raise SpecError(
            f"image {text!r}: the tag {tag!r} may have letters, digits, '_', '.' and '-', at most 128 of them"
        )
    if len(path) > _MAX_NAME_LENGTH:
        raise SpecError(f"image {text!r}: the name has {len(path)} characters, at most {_MAX_NAME_LENGTH} are allowed")
    parts = path.split("/")
    for part in parts[1:] if parse_registry(text) else parts:
        if not _PATH_PART.fullmatch(part):
            lower = part.lower()
            fix = (
                f"write {lower!r}"
                if _PATH_PART.fullmatch(lower)
                else "use a-z and 0-9 with single '.', '_' or '-' between"
            )
            raise SpecError(f"image {text!r}: {part!r} is not allowed in the name of an image; {fix}")
    return text


def parse_registry(text: str) -> str:
    """The registry in a name, or nothing: `ghcr.io` of ghcr.io/me/mnist:1, `` of me/mnist:1."""
    first, slash, _ = text.partition("/")
    return first if slash and _HOST.fullmatch(first) else ""


def check_registry(text: str) -> str:
    """`text`, if it names a registry to push to. Raises SpecError with the fix."""
    if not parse_registry(check_image_name(text)):
        raise SpecError(
            f"image {text!r} names no registry to push to; build it with one in its name, "
            f"such as registry.example.com/{text} or docker.io/YOU/{text.rpartition('/')[2]}"
        )
    return text


EXTRAS = ("torch", "tensorflow", "kubernetes", "operator", "scheduler")
MODEL_ZOO = "/model_zoo"
USER = "10001:10001"
# Where packages come from; these do not change the content of an image, and so not its name.
PACKAGE_SOURCE_ARGUMENTS = ("PIP_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT")


@dataclass(frozen=True, slots=True)
class RuntimeImage:
    """The image of this version of ElasticDL."""

    name: str
    arguments: Mapping[str, str]


def plan_runtime_image(extras: Sequence[str], arguments: Mapping[str, str], name: str = "") -> RuntimeImage:
    """The image with these extras and Kubernetes, which every pod needs. Each combination has its own name."""
    for extra in extras:
        if extra not in EXTRAS:
            raise SpecError(f"--extra {extra}: expected one of {', '.join(EXTRAS)}; other packages: {REQUIREMENTS}")
    base = pinning.default_base()  # the native core in the wheel works only with this Python
    all_extras = [extra for extra in EXTRAS if extra in {*extras, "kubernetes"}]
    own_arguments = {
        key: value
        for key, value in arguments.items()
        if key not in (*PACKAGE_SOURCE_ARGUMENTS, pinning.UNPINNED_ARGUMENT)
    }
    named_extras = [extra for extra in all_extras if extra != "kubernetes"]
    words = [
        elasticdl.__version__,
        *(["kubernetes"] if not named_extras else named_extras if named_extras != ["torch"] else []),
    ]
    if own_arguments:
        words.append(hashlib.sha256(json.dumps(own_arguments, sort_keys=True).encode()).hexdigest()[:8])
    return RuntimeImage(
        name or f"elasticdl:{'-'.join(words)}", {"BASE": base, "EXTRAS": ",".join(all_extras), **arguments}
    )


def parse_build_arguments(pairs: Sequence[str]) -> dict[str, str]:
    """Parse NAME=VALUE pairs of --build-arg. Raises SpecError."""
    for pair in pairs:
        if not pair.partition("=")[0].isidentifier() or "=" not in pair:
            raise SpecError(f"--build-arg {pair!r}: expected NAME=VALUE, such as TORCH_INDEX=https://…")
        if pair.startswith("PIP_EXTRA_INDEX_URL="):
            raise SpecError(
                "--build-arg PIP_EXTRA_INDEX_URL: with two indexes anyone who uploads a higher version to one of them "
                "gets it installed; name one index that has all packages: --build-arg PIP_INDEX_URL=https://…"
            )
        if re.search(r"://[^/\s]+@", pair):
            raise SpecError(
                f"--build-arg {pair.partition('=')[0]} contains a password, which everyone with the image could read; "
                "mount a pip.conf while building instead: -- --volume ~/.config/pip/pip.conf:/etc/pip.conf:ro"
            )
    return {pair.partition("=")[0]: pair.partition("=")[2] for pair in pairs}


def render_dockerfile(base: str, models: ModelDirectory) -> str:
    """The Dockerfile of a model directory on top of `base`: its packages first, as they change less often."""
    lines = [f"FROM {base}", "USER 0:0"]
    if models.has_requirements:
        lines += [f"ARG {name}" for name in PACKAGE_SOURCE_ARGUMENTS]
        lines += [
            f"COPY {REQUIREMENTS} {MODEL_ZOO}/",
            f"RUN python -m pip install --no-cache-dir --requirement {MODEL_ZOO}/{REQUIREMENTS}",
        ]
    lines += [f"COPY --chown={USER} . {MODEL_ZOO}/", "WORKDIR /", f"USER {USER}"]
    return "\n".join(lines) + "\n"


def suggest_train_command(image: str, models: ModelDirectory) -> str:
    """A command that trains with the image."""
    definition = models.definition or "MODULE.FUNCTION"
    return f"elasticdl train --image_name={image} --model_zoo=model_zoo --model_def={definition} --training_data=DATA"
