"""CURVE keys of a job's ps: only processes that hold them can connect, and all traffic is encrypted.

CurveZMQ: each connection is encrypted with keys of its own, after both sides have shown theirs. A job has two pairs:
all its ps are known by one, all its workers (and ps that speak to other ps) by the other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import zmq
from zmq.utils import z85

from elasticdl.errors import PermanentError, SpecError
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import write_private_file

KEYS_FILE = "ps-keys.json"  # in the job directory


class CurveKeys(NamedTuple):
    """Z85 text, as libzmq takes it. They do not show in logs."""

    server_public: str
    server_secret: str
    client_public: str
    client_secret: str

    @classmethod
    def generate(cls) -> CurveKeys:
        if not zmq.has("curve"):
            raise PermanentError("libzmq here was built without CURVE: expected pyzmq's own wheel; install pyzmq again")
        return cls(*(key.decode() for pair in (zmq.curve_keypair(), zmq.curve_keypair()) for key in pair))

    def write(self, path: Path) -> None:
        """Writes the keys to a file that only its owner may read."""
        write_private_file(path, json.dumps(self._asdict()))

    @classmethod
    def read(cls, path: Path) -> CurveKeys:
        try:
            if mode := path.stat().st_mode & 0o077:
                raise SpecError(f"{path}: expected mode 0600. Received: others may read it ({mode:03o}); chmod 600 it")
            return cls(**{name: _check_key(key) for name, key in json.loads(path.read_text()).items()})
        except OSError as exc:
            raise SpecError(f"{path}: expected the keys of the job's ps: {exc.strerror}") from exc
        except (ValueError, TypeError, AttributeError) as exc:
            raise SpecError(f"{path}: expected four keys of CURVE; delete the file, so that it is made again") from exc

    def configure_client(self, socket: zmq.Socket[bytes]) -> None:
        """Lets a socket connect only to ps that hold these keys."""
        socket.curve_serverkey = self.server_public.encode()
        socket.curve_publickey = self.client_public.encode()
        socket.curve_secretkey = self.client_secret.encode()

    def __repr__(self) -> str:
        return f"CurveKeys(server_public={self.server_public!r})"


def prepare_keys(spec: JobSpec, directory: Path) -> CurveKeys | None:
    """Makes the keys of a job with security that has none yet, before its ps start."""
    if not spec.security.is_on:
        return None
    if not (directory / KEYS_FILE).exists():
        CurveKeys.generate().write(directory / KEYS_FILE)
    return load_keys(spec, directory)


def load_keys(spec: JobSpec, directory: Path) -> CurveKeys | None:
    """Reads the keys of a job, for its ps and workers. None: the job has no security but its token."""
    return CurveKeys.read(directory / KEYS_FILE) if spec.security.is_on else None


def _check_key(key: str) -> str:
    if len(z85.decode(key.encode())) != 32:
        raise ValueError("a key of CURVE has 32 bytes")
    return key


def find_keys(job: Path) -> CurveKeys | None:
    """Reads the keys in a job's directory; None where there are none and the token is enough."""
    path = job / KEYS_FILE
    return CurveKeys.read(path) if path.exists() else None
