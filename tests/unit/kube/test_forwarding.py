"""The thread by which the Kubernetes client forwards a port."""

from __future__ import annotations

import threading

import pytest

from elasticdl.kube import api


@pytest.mark.filterwarnings("default::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_forward_whose_pipe_was_closed_says_nothing_and_all_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda died: told.append(died.exc_type))
    api.silence_port_forward_errors()
    api.silence_port_forward_errors()  # with each forward: once is enough

    def die(error: Exception) -> None:
        raise error

    for name, error in (
        ("Kubernetes port forward proxy: 50001", BrokenPipeError()),
        ("Kubernetes port forward proxy: 50001", RuntimeError()),
        ("another", BrokenPipeError()),
    ):
        thread = threading.Thread(target=die, args=(error,), name=name)
        thread.start()
        thread.join()

    assert told == [RuntimeError, BrokenPipeError]
