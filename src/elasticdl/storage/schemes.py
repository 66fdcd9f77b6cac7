"""Which addresses are places: paths of this machine, and URLs of object stores that fsspec can open.

`s3://bucket/prefix`, `gs://bucket/prefix` and `az://container/prefix` are object stores; `file:///x` is the path `/x`.
Credentials are never part of an address: each package reads them from the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote

from elasticdl.errors import SpecError
from elasticdl.extras import install_command

CONNECT_S, READ_S = 5.0, 30.0  # of one request; callers try again
LOCAL_SCHEME = "file"


@dataclass(frozen=True, slots=True)
class StoreScheme:
    package: str
    extra: str
    variables: str  # of the environment, as messages name them
    options: Mapping[str, Any] = field(default_factory=dict)


# max_concurrency bounds what an upload holds in memory: two parts of 50 MiB.
_S3: dict[str, Any] = {
    "max_concurrency": 2,
    "config_kwargs": {"connect_timeout": CONNECT_S, "read_timeout": READ_S, "retries": {"max_attempts": 0}},
}

SCHEMES = {
    "s3": StoreScheme(
        "s3fs",
        "s3",
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for a server other than Amazon's, AWS_ENDPOINT_URL",
        _S3,
    ),
    "gs": StoreScheme("gcsfs", "gs", "GOOGLE_APPLICATION_CREDENTIALS"),
    "az": StoreScheme("adlfs", "az", "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"),
}


def parse_scheme(address: str) -> str:
    """What stands before `://`, in lower case; "file" for a plain path."""
    scheme, separator, _ = address.partition("://")
    return scheme.lower() if separator else LOCAL_SCHEME


def is_store_address(address: str) -> bool:
    return parse_scheme(address) in SCHEMES


def has_password(address: str) -> bool:
    """Whether credentials stand before the bucket, as in s3://key:secret@bucket. Such an address is never repeated."""
    authority = address.partition("://")[2].partition("/")[0]
    return ":" in authority.partition("@")[0] and "@" in authority


def find_address_problem(address: str) -> str:
    """Why `address` is no place to write to or to take a model from; "" where it is one. Makes no request."""
    scheme, (_, _, path) = parse_scheme(address), address.partition("://")
    if scheme == LOCAL_SCHEME:
        is_absolute = "://" not in address or path.startswith("/")
        return "" if is_absolute else f"a file URL has an absolute path, such as file:///{path}; received {address!r}"
    if scheme not in SCHEMES:
        known_schemes = ", ".join(f"{name}://" for name in (*SCHEMES, LOCAL_SCHEME))
        return (
            f"{scheme}:// is not known; expected a path, or a URL that begins with one of {known_schemes}; "
            f"received {address!r}"
        )
    bucket = path.partition("/")[0]
    if not bucket:
        return f"expected a bucket, such as {scheme}://bucket/prefix; received {address!r}"
    if has_password(address):
        return (
            "the address holds a password, which would end in logs and job descriptions; leave it out and set "
            f"{SCHEMES[scheme].variables}"
        )
    if "?" in path or "#" in path:
        return f"expected {scheme}://bucket/prefix without ? and #; received {address!r}"
    return ""


def strip_file_scheme(address: str) -> str:
    """The path that a `file://` URL means; anything else as it is."""
    if parse_scheme(address) != LOCAL_SCHEME or "://" not in address:
        return address
    return unquote(address.partition("://")[2])


def open_filesystem(scheme: str) -> Any:
    """The file system of an object store, one for each process. Raises SpecError where its package is missing."""
    if find_spec(SCHEMES[scheme].package) is None:
        package, extra = SCHEMES[scheme].package, SCHEMES[scheme].extra
        raise SpecError(f"{scheme}:// needs the package {package}, which is not installed: {install_command(extra)}")
    return _open_filesystem(scheme, os.getpid())


@lru_cache(maxsize=len(SCHEMES))
def _open_filesystem(scheme: str, pid: int) -> Any:
    import fsspec  # a quarter of what the pod of a master imports before it serves, and of the command line

    # Listings are never cached: other processes write and remove what is listed.
    options = {"use_listings_cache": False, "skip_instance_cache": True, **SCHEMES[scheme].options}
    filesystem = fsspec.filesystem(scheme, **options)
    if hasattr(filesystem, "retries"):
        filesystem.retries = 1  # retrying is ours, see retrying.py: one bound in place of the product of three
    return filesystem


@lru_cache(maxsize=len(SCHEMES))
def transient_errors(scheme: str) -> tuple[type[Exception], ...]:
    """What the package of a scheme raises, beside OSError, when a server cannot be reached or breaks off."""
    names = {
        "s3": (
            "aiohttp.ClientError",
            "botocore.exceptions.ConnectionError",
            "botocore.exceptions.HTTPClientError",
            "botocore.parsers.ResponseParserError",
        ),
        "gs": ("aiohttp.ClientError", "google.auth.exceptions.TransportError"),
        "az": ("azure.core.exceptions.ServiceRequestError", "azure.core.exceptions.ServiceResponseError"),
    }[scheme]
    errors = []
    for module, _, name in (name.rpartition(".") for name in names):
        errors.append(getattr(import_module(module), name))
    return tuple(errors)
