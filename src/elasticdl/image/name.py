"""Names of images: checked before an engine is asked, since each engine words its refusal differently."""

from __future__ import annotations

import re

from elasticdl.errors import SpecError

_HOST = re.compile(r"(localhost|[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)+|[a-zA-Z0-9.-]+(?=:))(:[0-9]+)?")
_PART = re.compile(r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_LONGEST = 255


def check(text: str) -> str:
    """`text`, if it is a NAME:TAG that every engine, registry and pod takes. Raises SpecError with the fix."""
    if "://" in text:
        raise SpecError(f"image {text!r}: a name has no scheme; write {text.partition('://')[2]!r}")
    if "@" in text:
        raise SpecError(f"image {text!r}: a digest comes out of a build, it cannot be asked for; write NAME:TAG")
    path, colon, tag = text.rpartition(":")
    if not colon or "/" in tag:
        raise SpecError(
            f"image {text!r}: expected NAME:TAG; write {text}:1, as without a tag pods cannot tell versions"
        )
    if not _TAG.fullmatch(tag):
        raise SpecError(
            f"image {text!r}: the tag {tag!r} may have letters, digits, '_', '.' and '-', at most 128 of them"
        )
    if len(path) > _LONGEST:
        raise SpecError(f"image {text!r}: the name has {len(path)} characters, at most {_LONGEST} are allowed")
    parts = path.split("/")
    for part in parts[1:] if registry(text) else parts:
        if not _PART.fullmatch(part):
            lower = part.lower()
            fix = (
                f"write {lower!r}" if _PART.fullmatch(lower) else "use a-z and 0-9 with single '.', '_' or '-' between"
            )
            raise SpecError(f"image {text!r}: {part!r} is not allowed in the name of an image; {fix}")
    return text


def registry(text: str) -> str:
    """The registry in a name, or nothing: `ghcr.io` of ghcr.io/me/mnist:1, `` of me/mnist:1."""
    first, slash, _ = text.partition("/")
    return first if slash and _HOST.fullmatch(first) else ""


def check_registry(text: str) -> str:
    """`text`, if it says where to push to. Raises SpecError with the fix."""
    if not registry(check(text)):
        raise SpecError(
            f"image {text!r} names no registry to push to; build it with one in its name, "
            f"such as registry.example.com/{text} or docker.io/YOU/{text.rpartition('/')[2]}"
        )
    return text
