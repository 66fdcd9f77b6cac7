"""A ps's part in a cut: rows are copied while nobody is let in, and written while everybody is.

CUT is answered when the copy is made. KEPT names the directory, and is asked again until the file is written: whoever
waits hears soon when this ps is gone, and no thread that serves workers waits for the disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from elasticdl.checkpoint import staging
from elasticdl.checkpoint.manifest import FileEntry
from elasticdl.errors import CheckpointFailed, SpecError, StoreUnavailable
from elasticdl.ps import chain, cuts
from elasticdl.ps.chain import Packed
from elasticdl.ps.cuts import Copy
from elasticdl.ps.holdings import Holdings
from elasticdl.ps.marks import Flags, flags
from elasticdl.ps.store import Refused
from elasticdl.ps.wire import Kind, Message
from elasticdl.storage.names import FileName
from elasticdl.storage.place import StorePath, open_place
from elasticdl.storage.retrying import RETRY_S
from elasticdl.storage.scratch import scratch

Text = TypeVar("Text", bound=BaseModel)

_UNWRITTEN = 2  # copies: one waits for its turn, and the next is made
_REMEMBERED = 4  # written cuts that may be asked for
_DENSE = 0.5  # an increment of so many of the rows: the next cut is whole, and the files before it are free


class _Text(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cut(_Text):
    """The text of CUT."""

    cut: str
    base: str  # the cut it builds upon; "" for none
    number: int


class Taken(_Text):
    """The reply to CUT."""

    pause_s: float  # for so long nobody could pull or push
    owned: Packed
    whole: Packed
    rows: int
    applied: int


class Keep(_Text):
    """The text of KEPT. It is asked again until the reply has an entry."""

    cut: str
    directory: str  # or a prefix of an object store
    name: FileName
    retry_s: float = RETRY_S  # for how long a store that does not answer is tried


class Kept(_Text):
    """The reply to KEPT. No bytes: not written yet, or not known: this ps is a new one, or has made others since."""

    is_known: bool = True
    bytes: int = 0
    sha256: str = ""
    unavailable: str = ""  # why it is not written and this checkpoint is given up: the next may be


class _Known(NamedTuple):
    """A cut that a later one may build upon."""

    owned: Flags
    since: int  # changes after it are of this generation or later
    is_dense: bool


class Keeper:
    """Every method may be called from any thread."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._lock = threading.Lock()  # of all that follows
        self._known: dict[str, _Known] = {}  # oldest first
        self._copies: dict[str, Copy] = {}  # oldest first; until they are written, or given up
        self._written: dict[str, Future[FileEntry]] = {}
        self._taken: dict[str, Future[Taken]] = {}  # the newest
        self._copier, self._writer = ThreadPoolExecutor(1, "ps-copier"), ThreadPoolExecutor(1, "ps-writer")

    @property
    def answers(self) -> Mapping[Kind, Callable[[Message], Message | None]]:
        return {Kind.CUT: self._cut, Kind.KEPT: self._kept}

    def resume(self, cut: str, slots: Sequence[int]) -> None:
        """These slots were restored from this cut: the next may build upon it. Before anyone pulls or pushes there."""
        with self._lock:
            since = self._holdings.turn()
            known = self._known.get(cut)
            owned = flags(slots)
            # A slot that came to the others later is of their generation or a newer one: that finds it, too.
            self._known[cut] = known._replace(owned=known.owned | owned) if known else _Known(owned, since, False)

    def close(self) -> None:
        """Wait for what is being written."""
        self._copier.shutdown()
        self._writer.shutdown()

    def _cut(self, message: Message) -> Message | None:
        """Not on the thread that serves it: those whom the gate waits for may need that one."""
        wanted = _parsed(Cut, message)
        with self._lock:
            if wanted.cut not in self._taken:
                self._taken = {wanted.cut: self._copier.submit(self._take, wanted)}
                self._written = dict(list(self._written.items())[-_REMEMBERED:])
            future = self._taken[wanted.cut]
        return self._reply(message, future.result()) if future.done() else None

    def _take(self, wanted: Cut) -> Taken:
        known = self._known.get(wanted.base)
        started = time.monotonic()
        with self._holdings.closed():
            owned = self._holdings.held
            before = None if known is None or known.is_dense else known.owned
            whole = chain.whole(owned, before, wanted.number)
            others = owned & (1 - whole)
            copy, changed = cuts.copy(self._holdings, whole, others, known.since if known else 0)
            since, applied = self._holdings.turn(), self._holdings.applied
        pause_s = time.monotonic() - started
        with self._lock:
            self._forget_before(wanted.base)
            self._known[wanted.cut] = _Known(owned, since, self._is_dense(owned, others, changed))
            self._copies = dict([*self._copies.items(), (wanted.cut, copy)][-_UNWRITTEN:])
        packed = {"owned": chain.pack(owned), "whole": chain.pack(whole)}
        return Taken(pause_s=pause_s, rows=copy.rows, applied=applied, **packed)

    def _kept(self, message: Message) -> Message:
        wanted = _parsed(Keep, message)
        if Path(wanted.name).name != wanted.name:
            raise Refused(f"KEPT: expected the name of a file. Received: {wanted.name}")
        with self._lock:
            if wanted.cut in self._copies:
                self._written[wanted.cut] = self._writer.submit(_write, wanted, self._copies.pop(wanted.cut))
            future = self._written.get(wanted.cut)
        if future is None:
            return self._reply(message, Kept(is_known=False))
        if not future.done():
            return self._reply(message, Kept())
        try:
            entry = future.result()
        except (CheckpointFailed, SpecError) as exc:
            raise Refused(str(exc)) from exc
        except StoreUnavailable as exc:
            return self._reply(message, Kept(unavailable=str(exc)))
        return self._reply(message, Kept(bytes=entry.bytes, sha256=entry.sha256))

    def _forget_before(self, base: str) -> None:
        """Nobody goes back behind the cut that the newest builds upon."""
        if base in self._known:
            while next(iter(self._known)) != base:
                del self._known[next(iter(self._known))]

    def _is_dense(self, owned: Flags, others: Flags, changed: int) -> bool:
        """Whether most rows of these slots are in the increment; rows are spread evenly over the slots."""
        rows: int = sum(table["rows"] for table in self._holdings.status()["tables"].values())
        share = int(others.sum()) / max(1, int(owned.sum()))
        return changed > _DENSE * rows * share

    def _reply(self, message: Message, text: _Text) -> Message:
        version = self._holdings.map.version
        return Message(Kind.REPLY, message.request, version, text=text.model_dump_json().encode())


def _write(wanted: Keep, copy: Copy) -> FileEntry:
    directory = open_place(wanted.directory, wanted.retry_s)
    try:
        return cuts.write(directory, wanted.name, copy)
    except OSError as exc:
        path = scratch() if isinstance(directory, StorePath) else directory
        raise staging.failed(path / wanted.name, exc) from exc


def _parsed(kind: type[Text], message: Message) -> Text:
    try:
        return kind.model_validate_json(message.text)
    except ValidationError as exc:
        raise Refused(f"{message.kind.name}: {exc}") from exc
