from __future__ import annotations

import threading

from elasticdl.ps.tables.shared_lock import SharedLock


def test_whoever_closes_it_waits_for_those_inside_and_keeps_others_out() -> None:
    gate, order = SharedLock(), list[str]()
    is_closing, is_closed, may_open = threading.Event(), threading.Event(), threading.Event()

    def close() -> None:
        is_closing.set()
        with gate.exclusive():
            order.append("closed")
            is_closed.set()
            may_open.wait(30)
            order.append("open")

    def come() -> None:
        with gate.shared():
            order.append("came")

    gate.acquire_shared()
    closer, comer = threading.Thread(target=close), threading.Thread(target=come)
    closer.start()
    assert is_closing.wait(30)
    while gate.acquire_shared(wait=False):  # until the closer has arrived at the gate
        gate.release_shared()
    assert not is_closed.is_set(), "one is inside"
    comer.start()
    order.append("left")
    gate.release_shared()
    assert is_closed.wait(30)
    may_open.set()
    closer.join()
    comer.join()

    assert order == ["left", "closed", "open", "came"]
