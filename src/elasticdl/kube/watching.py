"""Keep a copy of what the API server has: list once, then watch, and miss nothing whatever happens in between.

`Mirror` is pure; `follow` feeds it. A watch that breaks goes on from the last version seen (bookmarks keep that fresh
while nothing of ours changes); where the server has forgotten that version, a new list tells the differences.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

from elasticdl.kube.api import Api, Watch
from elasticdl.kube.errors import ApiError, Gone
from elasticdl.kube.kinds import Kind
from elasticdl.kube.pauses import pauses

Document = dict[str, Any]

WATCH_S = 300.0  # then the server ends the watch, and the next goes on where it stood
_SHORT_S = 1.0  # a watch that ended sooner, and told nothing, is followed by a pause
_log = logging.getLogger(__name__)


class Change(NamedTuple):
    """`before` None: it is new. `after` None: it is gone, and `before` is what it last was."""

    before: Document | None
    after: Document | None


class Mirror:
    """What the server has, as far as we were told."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Document] = {}
        self.version = ""  # to watch from; "": list first

    def relist(self, items: Iterable[Document], version: str) -> list[Change]:
        """All that is there. What we knew of and is not there any more is gone."""
        self.version = version
        now = {_key(item): item for item in items}
        changes = [Change(self.objects.pop(key), None) for key in list(self.objects) if key not in now]
        for item in now.values():
            changes += self._put(item)
        return changes

    def event(self, type_: str, item: Document) -> list[Change]:
        """One event of a watch."""
        self.version = item["metadata"]["resourceVersion"]
        if type_ == "BOOKMARK":
            return []
        if type_ == "DELETED":
            # The event has the last state, of which the watch may not have told.
            known = self.objects.pop(_key(item), None)
            return [] if known is None else [Change(item, None)]
        return self._put(item)

    def _put(self, item: Document) -> list[Change]:
        before = self.objects.get(_key(item))
        self.objects[_key(item)] = item
        if before is None:
            return [Change(None, item)]
        if before["metadata"]["uid"] != item["metadata"]["uid"]:  # another of the same name
            return [Change(before, None), Change(None, item)]
        if before["metadata"]["resourceVersion"] == item["metadata"]["resourceVersion"]:
            return []
        return [Change(before, item)]


def _key(item: Document) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


class _Current:
    """The watch that is open. A thread waits for `stopped` and closes it: nobody can wait for both at once."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped
        self._watch: Watch | None = None  # or one that has ended: closing it again does nothing
        threading.Thread(target=self._close_when_stopped, name="watch-stopper", daemon=True).start()

    def set(self, watch: Watch) -> None:
        self._watch = watch
        if self._stopped.is_set():
            watch.close()

    def _close_when_stopped(self) -> None:
        self._stopped.wait()
        if self._watch is not None:
            self._watch.close()


def follow(
    api: Api,
    kind: Kind,
    namespace: str,
    labels: str,
    stopped: threading.Event,
    *,
    fields: str = "",
    watch_s: float = WATCH_S,
    mirror: Mirror | None = None,
) -> Iterator[list[Change]]:
    """Changes, together as they became known: first all there is (perhaps nothing), then never an empty list.

    Blocks between them. Errors are waited out, whatever they are: a right that is missing may be granted, a server
    that is away comes back. To end it, set `stopped`.
    """
    mirror = mirror or Mirror()
    current = _Current(stopped)
    waits, last_error, is_first = pauses(), "", True
    while not stopped.is_set():
        began, heard = time.monotonic(), False
        try:
            if not mirror.version:
                changes = mirror.relist(*api.list(kind, namespace, labels, fields))
                if changes or is_first:
                    is_first = False
                    yield changes
            with closing(api.watch(kind, namespace, labels, mirror.version, watch_s, fields)) as watch:
                current.set(watch)
                last_error = ""
                for event in watch:
                    heard = True
                    if changes := mirror.event(*event):
                        yield changes
        except Gone:
            mirror.version = ""
        except ApiError as exc:
            if str(exc) != last_error and not stopped.is_set():
                _log.warning("%s; trying again", exc)
                last_error = str(exc)
        if heard or time.monotonic() - began >= _SHORT_S:
            waits = pauses()
        else:
            stopped.wait(next(waits))
