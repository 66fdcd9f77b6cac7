"""Follows the objects of the API server without missing a change: lists them once, then watches.

`WatchCache` holds them and is pure; `follow_changes` feeds it. After a lost connection the next watch continues from
the last version (bookmarks keep that recent while nothing changes); if that version is too old for the server, a new
list is compared with the cache.
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

WATCH_S = 300.0  # after which the server ends a watch, and the next one continues
_SHORT_S = 1.0  # after a watch that ended sooner, without an event, the next one is delayed
_log = logging.getLogger(__name__)


class ObjectChange(NamedTuple):
    """`before` is None for a new object. `after` is None for a deleted one, and `before` its last state."""

    before: Document | None
    after: Document | None


class WatchCache:
    """The objects of the server, as far as lists and watches have reported them."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Document] = {}
        self.version = ""  # the version to watch from; "": list first

    def relist(self, items: Iterable[Document], version: str) -> list[ObjectChange]:
        """Compares the cache with a complete list; objects that are not in it were deleted."""
        self.version = version
        listed = {_object_key(item): item for item in items}
        changes = [ObjectChange(self.objects.pop(key), None) for key in list(self.objects) if key not in listed]
        for item in listed.values():
            changes += self._put(item)
        return changes

    def apply_event(self, type_: str, item: Document) -> list[ObjectChange]:
        """Applies one event of a watch."""
        self.version = item["metadata"]["resourceVersion"]
        if type_ == "BOOKMARK":
            return []
        if type_ == "DELETED":
            # The event has the last state of the object, which may be newer than that in the cache.
            cached = self.objects.pop(_object_key(item), None)
            return [] if cached is None else [ObjectChange(item, None)]
        return self._put(item)

    def _put(self, item: Document) -> list[ObjectChange]:
        before = self.objects.get(_object_key(item))
        self.objects[_object_key(item)] = item
        if before is None:
            return [ObjectChange(None, item)]
        if before["metadata"]["uid"] != item["metadata"]["uid"]:  # a new object of the same name
            return [ObjectChange(before, None), ObjectChange(None, item)]
        if before["metadata"]["resourceVersion"] == item["metadata"]["resourceVersion"]:
            return []
        return [ObjectChange(before, item)]


def _object_key(item: Document) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


class _OpenWatch:
    """Closes the current watch when `stopped` is set, from a thread: reading a watch cannot wait for an event too."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped
        self._watch: WatchStream | None = None  # it may have ended: closing it again does nothing

    def start(self) -> None:
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
    cache: WatchCache | None = None,
) -> Iterator[list[ObjectChange]]:
    """Yields lists of changes: first one with all existing objects, which may be empty, then one for each change.

    Blocks in between, and tries again after every error: a missing right may be granted, a server may come back. Set
    `stopped` to end it.
    """
    cache = cache or WatchCache()
    open_watch = _OpenWatch(stopped)
    open_watch.start()
    delays, last_error, is_first = backoff_delays(), "", True
    while not stopped.is_set():
        started_at, has_events = time.monotonic(), False
        try:
            if not cache.version:
                changes = cache.relist(*api.list(kind, namespace, labels, fields))
                if changes or is_first:
                    is_first = False
                    yield changes
            with closing(api.watch(kind, namespace, labels, cache.version, watch_s, fields)) as watch:
                open_watch.set(watch)
                last_error = ""
                for event in watch:
                    has_events = True
                    if changes := cache.apply_event(*event):
                        yield changes
        except Gone:
            cache.version = ""
        except ApiError as exc:
            if str(exc) != last_error and not stopped.is_set():
                _log.warning("%s; trying again", exc)
                last_error = str(exc)
        if has_events or time.monotonic() - started_at >= _SHORT_S:
            delays = backoff_delays()
        else:
            stopped.wait(next(delays))
