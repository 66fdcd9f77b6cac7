"""Failures of the thread by which the Kubernetes client forwards a port."""

from __future__ import annotations

import threading

import pytest

from elasticdl.kube import api


@pytest.mark.filterwarnings("default::pytest.PytestUnhandledThreadExceptionWarning")
def test_only_a_port_forward_whose_pipe_was_closed_fails_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda failure: reported.append(failure.exc_type))
    api.silence_port_forward_errors()
    api.silence_port_forward_errors()  # called for each port-forward, installed once

    def fail(error: Exception) -> None:
        raise error

    for name, error in (
        ("Kubernetes port forward proxy: 50001", BrokenPipeError()),
        ("Kubernetes port forward proxy: 50001", RuntimeError()),
        ("another", BrokenPipeError()),
    ):
        thread = threading.Thread(target=fail, args=(error,), name=name)
        thread.start()
        thread.join()

    assert reported == [RuntimeError, BrokenPipeError]
