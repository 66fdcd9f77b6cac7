"""HTTP requests to a process of this machine, such as a kubelet's probes."""

from __future__ import annotations

import urllib.error
import urllib.request


def http_get(port: int, path: str, timeout_s: float) -> tuple[int, str]:
    """Returns the status and the text, also of an error. Raises OSError if nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout_s) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read().decode().strip()
