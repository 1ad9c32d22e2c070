"""The state of a stream, as its server reports it."""

from __future__ import annotations

from typing import NamedTuple

from headwater.common.model import StreamID


class StreamState(NamedTuple):
    """What XINFO STREAM reports about a stream. ``first_id`` is the first entry's id, 0-0 if empty."""

    length: int
    last_id: StreamID
    max_deleted_id: StreamID
    entries_added: int
    first_id: StreamID

    @property
    def removed(self) -> int:
        """How many entries were ever removed from the stream, in any way."""
        return self.entries_added - self.length
