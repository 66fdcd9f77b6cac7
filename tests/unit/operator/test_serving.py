"""What the operator tells kopf."""

from __future__ import annotations

import asyncio
import getpass
from typing import Any, cast

import kopf
import pytest

from elasticdl.kube.api import Api
from elasticdl.kube.election import Election
from elasticdl.operator import __main__ as operator


def test_an_operator_needs_no_user_with_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users of pods are numbers, any number in some clusters: none that the image's passwd knows."""

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 10001")

    async def ended(tasks: Any, **_: Any) -> None:
        for task in tasks:
            task.cancel()

    async def serve() -> None:
        election = Election(cast(Api, None), "lease", "team", "me", lease_s=1000.0)
        monkeypatch.setattr(election, "release", lambda: asyncio.sleep(0))
        await operator.serve(cast(Api, None), election)

    monkeypatch.setattr(getpass, "getuser", nobody)
    monkeypatch.setattr(kopf, "run_tasks", ended)
    asyncio.run(serve())
