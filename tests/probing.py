"""Asking a process of this machine over HTTP, as a kubelet does."""

from __future__ import annotations

import urllib.error
import urllib.request


def ask(port: int, path: str, timeout_s: float) -> tuple[int, str]:
    """Status and text, whatever the status. OSError where nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout_s) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read().decode().strip()
