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

from elasticdl.kube.api import Api, WatchStream
from elasticdl.kube.errors import ApiError, Gone
from elasticdl.kube.kinds import ResourceKind
from elasticdl.retry import backoff_delays

Document = dict[str, Any]

WATCH_S = 300.0  # then the server ends the watch, and the next goes on where it stood
_SHORT_S = 1.0  # a watch that ended sooner, and told nothing, is followed by a pause
_log = logging.getLogger(__name__)


class ObjectChange(NamedTuple):
    """`before` None: it is new. `after` None: it is gone, and `before` is what it last was."""

    before: Document | None
    after: Document | None


class WatchCache:
    """What the server has, as far as we were told."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Document] = {}
        self.version = ""  # to watch from; "": list first

    def relist(self, items: Iterable[Document], version: str) -> list[ObjectChange]:
        """All that is there. What we knew of and is not there any more is gone."""
        self.version = version
        now = {_object_key(item): item for item in items}
        changes = [ObjectChange(self.objects.pop(key), None) for key in list(self.objects) if key not in now]
        for item in now.values():
            changes += self._put(item)
        return changes

    def apply_event(self, type_: str, item: Document) -> list[ObjectChange]:
        """One event of a watch."""
        self.version = item["metadata"]["resourceVersion"]
        if type_ == "BOOKMARK":
            return []
        if type_ == "DELETED":
            # The event has the last state, of which the watch may not have told.
            known = self.objects.pop(_object_key(item), None)
            return [] if known is None else [ObjectChange(item, None)]
        return self._put(item)

    def _put(self, item: Document) -> list[ObjectChange]:
        before = self.objects.get(_object_key(item))
        self.objects[_object_key(item)] = item
        if before is None:
            return [ObjectChange(None, item)]
        if before["metadata"]["uid"] != item["metadata"]["uid"]:  # another of the same name
            return [ObjectChange(before, None), ObjectChange(None, item)]
        if before["metadata"]["resourceVersion"] == item["metadata"]["resourceVersion"]:
            return []
        return [ObjectChange(before, item)]


def _object_key(item: Document) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


class _OpenWatch:
    """The watch that is open. A thread waits for `stopped` and closes it: nobody can wait for both at once."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped
        self._watch: WatchStream | None = None  # or one that has ended: closing it again does nothing
        threading.Thread(target=self._close_when_stopped, name="watch-stopper", daemon=True).start()

    def set(self, watch: WatchStream) -> None:
        self._watch = watch
        if self._stopped.is_set():
            watch.close()

    def _close_when_stopped(self) -> None:
        self._stopped.wait()
        if self._watch is not None:
            self._watch.close()


def follow_changes(
    api: Api,
    kind: ResourceKind,
    namespace: str,
    labels: str,
    stopped: threading.Event,
    *,
    fields: str = "",
    watch_s: float = WATCH_S,
    mirror: WatchCache | None = None,
) -> Iterator[list[ObjectChange]]:
    """Changes, together as they became known: first all there is (perhaps nothing), then never an empty list.

    Blocks between them. Errors are waited out, whatever they are: a right that is missing may be granted, a server
    that is away comes back. To end it, set `stopped`.
    """
    mirror = mirror or WatchCache()
    current = _OpenWatch(stopped)
    waits, last_error, is_first = backoff_delays(), "", True
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
                    if changes := mirror.apply_event(*event):
                        yield changes
        except Gone:
            mirror.version = ""
        except ApiError as exc:
            if str(exc) != last_error and not stopped.is_set():
                _log.warning("%s; trying again", exc)
                last_error = str(exc)
        if heard or time.monotonic() - began >= _SHORT_S:
            waits = backoff_delays()
        else:
            stopped.wait(next(waits))
