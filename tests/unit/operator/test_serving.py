"""The arguments that the operator passes to kopf."""

from __future__ import annotations

import asyncio
import getpass
from typing import Any, cast

import kopf
import pytest

from elasticdl.kube.api import Api
from elasticdl.kube.election import Election
from elasticdl.operator import __main__ as operator


def test_an_operator_runs_as_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users of pods are numbers, in some clusters any number: the image's passwd does not list them."""

    def raise_key_error() -> str:
        raise KeyError("getpwuid(): uid not found: 10001")

    async def cancel_tasks(tasks: Any, **_: Any) -> None:
        for task in tasks:
            task.cancel()

    async def serve() -> None:
        election = Election(cast(Api, None), "lease", "team", "operator-0", lease_s=1000.0)
        monkeypatch.setattr(election, "release", lambda: asyncio.sleep(0))
        await operator.serve(cast(Api, None), election)

    monkeypatch.setattr(getpass, "getuser", raise_key_error)
    monkeypatch.setattr(kopf, "run_tasks", cancel_tasks)
    asyncio.run(serve())
