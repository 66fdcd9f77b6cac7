"""The frames that a donor still has to send to a newcomer, bounded in memory. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

SLACK_BYTES = 64 << 20


class _Outgoing:
    """The part of a frame that is not sent yet."""

    def __init__(self, pieces: Iterable[memoryview], *, is_state: bool) -> None:
        self.pieces = deque(piece for piece in pieces if piece)
        self.is_state = is_state
        self.is_begun = False

    @property
    def unsent_bytes(self) -> int:
        return sum(len(piece) for piece in self.pieces)


class Backlog:
    """A queue of frames to one newcomer. Not safe for threads: its owner holds a lock."""

    def __init__(self, slack_bytes: int = SLACK_BYTES) -> None:
        self._slack_bytes = slack_bytes
        self._frames: deque[_Outgoing] = deque()
        self._state_bytes = 0
        self._update_bytes = 0  # of the largest update since the state
        self.unsent_bytes = 0
        self.is_following = False  # the newcomer can apply the next update
        self.overtaken = 0  # how often updates were made faster than the newcomer took them

    @property
    def is_empty(self) -> bool:
        return not self._frames

    @property
    def needs_state(self) -> bool:
        """Whether to send the state, and no frame is under way before it."""
        return not self.is_following and not self._frames

    @property
    def max_bytes(self) -> int:
        """The bound of `unsent_bytes`, unless the last update was larger."""
        return self._state_bytes + self._update_bytes + self._slack_bytes

    def put_state(self, pieces: Iterable[memoryview]) -> None:
        assert self.needs_state, "this would queue a second copy of the state"
        state = _Outgoing(pieces, is_state=True)
        self._state_bytes, self._update_bytes = state.unsent_bytes, 0
        self._append(state)
        self.is_following = True

    def put_update(self, pieces: Iterable[memoryview], *, is_last: bool = False) -> bool:
        """Add the next update. False: it is dropped, with all other updates that were not begun.

        The last update is always added: a newcomer that is told to enter a round is close behind.
        """
        assert self.is_following, "an update that the newcomer could not apply"
        update = _Outgoing(pieces, is_state=False)
        self._update_bytes = max(self._update_bytes, update.unsent_bytes)
        if self.unsent_bytes + update.unsent_bytes > self.max_bytes and not is_last:
            self.restart()
            self.overtaken += 1
            return False
        self._append(update)
        return True

    def put_message(self, pieces: Iterable[memoryview]) -> None:
        """Add a small frame that belongs to no state."""
        self._append(_Outgoing(pieces, is_state=False))

    def restart(self) -> None:
        """Drop the updates that wait: one before them was not added, so only the whole state helps."""
        self.is_following = False
        self._frames = deque(frame for frame in self._frames if frame.is_begun or frame.is_state)
        self.unsent_bytes = sum(frame.unsent_bytes for frame in self._frames)

    def discard(self) -> None:
        """Drop everything: nothing will be sent any more."""
        self._frames.clear()
        self.unsent_bytes, self.is_following = 0, False

    def next_piece(self) -> memoryview | None:
        """The piece to send now. From here on its frame is sent to the end: a part of a frame cannot be taken back."""
        if not self._frames:
            return None
        self._frames[0].is_begun = True
        return self._frames[0].pieces[0]

    def mark_sent(self, count: int) -> None:
        """`count` bytes of `next_piece` are sent."""
        if not count or not self._frames:
            return  # the frame was dropped meanwhile
        frame = self._frames[0]
        piece = frame.pieces.popleft()
        if count < len(piece):
            frame.pieces.appendleft(piece[count:])
        self.unsent_bytes -= count
        if not frame.pieces:
            self._frames.popleft()

    def _append(self, frame: _Outgoing) -> None:
        if frame.pieces:
            self._frames.append(frame)
            self.unsent_bytes += frame.unsent_bytes
