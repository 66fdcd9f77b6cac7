"""Pins the base of an image by digest: a tag may be another image next week, a digest is always the same one.

recipe/bases.txt has the digests of a release (`make base` reads them from the registry). If it has none for this
Python's base, the registry is queried when the image is built, and the digest is shown to the user.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

from elasticdl.errors import SpecError

UNPINNED_ARGUMENT = "UNPINNED_BASE"  # a build argument: "yes" for a base that exists on this machine only
BASES_FILE = "bases.txt"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TIMEOUT_S = 20.0
_PINNED = re.compile(r".+@sha256:[0-9a-f]{64}")
_HUB = "registry-1.docker.io"
_MANIFEST_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
FetchDigest = Callable[[str], str]


def default_base(python: str = f"{sys.version_info.major}.{sys.version_info.minor}") -> str:
    """The base for a Python version; the native core in the wheel works only with this version."""
    return f"python:{python}-slim-bookworm"


def is_pinned(image: str) -> bool:
    return _PINNED.fullmatch(image) is not None


def recorded_bases(text: str | None = None) -> dict[str, str]:
    """The bases in recipe/bases.txt with their digests, by tag."""
    if text is None:
        text = (resources.files("elasticdl.image") / "recipe" / BASES_FILE).read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in lines:
        if not is_pinned(line):
            raise SpecError(f"{BASES_FILE}: expected NAME:TAG@sha256:…, received {line!r}; run: make base")
    return {line.partition("@")[0]: line for line in lines}


def pin_base(arguments: Mapping[str, str], fetch: FetchDigest | None = None) -> dict[str, str]:
    """The build arguments with a BASE by digest. `fetch` returns the digest of a tag.

    Raises SpecError for a base without a digest, unless UNPINNED_BASE=yes allows it.
    """
    base = arguments["BASE"]
    others = {key: value for key, value in arguments.items() if key != UNPINNED_ARGUMENT}
    if is_pinned(base) or arguments.get(UNPINNED_ARGUMENT) == "yes":
        return others
    if base != default_base():
        raise SpecError(
            f"--build-arg BASE={base}: a tag can be another image tomorrow; name it by digest, {base}@sha256:… "
            f"(`docker buildx imagetools inspect {base}` shows it), or, for one that exists on this machine only, "
            f"add --build-arg {UNPINNED_ARGUMENT}=yes"
        )
    return {**others, "BASE": recorded_bases().get(base) or f"{base}@{(fetch or fetch_digest)(base)}"}


def fetch_digest(image: str, registry: str = f"https://{_HUB}", timeout_s: float = TIMEOUT_S) -> str:
    """The current digest of a tag of a registry's official images. Raises SpecError with the fix."""
    name, _, tag = image.partition(":")
    repository = name if "/" in name else f"library/{name}"
    address = f"{registry}/v2/{repository}/manifests/{tag}"
    try:
        try:
            digest = _head_digest(address, "", timeout_s)
        except urllib.error.HTTPError as exc:
            if exc.code != 401:
                raise
            digest = _head_digest(address, _fetch_token(exc.headers.get("WWW-Authenticate", ""), timeout_s), timeout_s)
    except (OSError, ValueError) as exc:
        raise SpecError(
            f"the digest of {image} cannot be read from {registry}: {exc}; set it yourself: "
            f"--build-arg BASE={image}@sha256:…, or, for one that exists on this machine only, "
            f"--build-arg BASE={image} "
            f"--build-arg {UNPINNED_ARGUMENT}=yes"
        ) from exc
    if not re.fullmatch("sha256:[0-9a-f]{64}", digest):
        raise SpecError(f"{registry} returns no digest of {image}; set it yourself: --build-arg BASE={image}@sha256:…")
    return digest


def _head_digest(address: str, token: str, timeout_s: float) -> str:
    headers = {"Accept": ", ".join(_MANIFEST_TYPES)} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(address, headers=headers, method="HEAD")
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        return str(answer.headers.get("Docker-Content-Digest", ""))


def _fetch_token(challenge: str, timeout_s: float) -> str:
    """Fetch a token for a registry's challenge: Bearer realm="…",service="…",scope="…"."""
    parameters = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    realm = parameters.pop("realm", "")
    if urllib.parse.urlsplit(realm).scheme not in ("https", "http"):
        raise ValueError(f"it requires an unsupported authentication: {challenge!r:.80}")
    with urllib.request.urlopen(f"{realm}?{urllib.parse.urlencode(parameters)}", timeout=timeout_s) as answer:
        document: dict[str, Any] = json.load(answer)
    return str(document.get("token") or document.get("access_token") or "")
