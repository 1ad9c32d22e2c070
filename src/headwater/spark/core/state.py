"""What a server says of one stream."""

from __future__ import annotations

from typing import NamedTuple

from headwater.model import StreamID


class StreamState(NamedTuple):
    """What XINFO STREAM says of a stream. ``first_id`` is that of the first entry, 0-0 if none."""

    length: int
    last_id: StreamID
    max_deleted_id: StreamID
    entries_added: int
    first_id: StreamID

    @property
    def removed(self) -> int:
        """How many entries were ever removed from it, by whatever means."""
        return self.entries_added - self.length
