"""CURVE keys of a job's ps: only processes that hold them can connect, and all traffic is encrypted.

CurveZMQ: both sides authenticate with long-term keys, then each connection is encrypted with keys of its own. A job
has two pairs: one for all its ps, one for all its workers and for ps that connect to other ps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import zmq
from zmq.utils import z85

from elasticdl.errors import PermanentError, SpecError
from elasticdl.spec.directory import write_private_file

KEYS_FILE = "ps-keys.json"  # in the job directory


class CurveKeys(NamedTuple):
    """Keys as Z85 text, as libzmq expects them. The secret ones do not appear in logs."""

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


def find_keys(job: Path) -> CurveKeys | None:
    """Reads the keys in a job's directory. None: the job has no keys, its token is enough."""
    path = job / KEYS_FILE
    return CurveKeys.read(path) if path.exists() else None


def _check_key(key: str) -> str:
    if len(z85.decode(key.encode())) != 32:
        raise ValueError("a key of CURVE has 32 bytes")
    return key
