"""The door to the server for readers that have an archive beside it: what is archived is there,
also when the stream's key is gone.
"""

from __future__ import annotations

from headwater.errors import DataLoss
from headwater.model import MIN_ID
from headwater.spark.archive.manifest import Manifest, archived_streams
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.state import StreamState
from headwater.spark.core.store import SourceStore


class ArchiveStore(SourceStore):
    """One server and one archive, asked about streams."""

    def __init__(self, options: SourceOptions) -> None:
        assert options.archive is not None
        super().__init__(options)
        self._archive = options.archive
        self._manifests: dict[str, Manifest] = {}

    def manifest(self, stream: str) -> Manifest:
        """The manifest of ``stream``, the same object each time: it reads only what is new."""
        if stream not in self._manifests:
            self._manifests[stream] = Manifest(self._archive, stream)
        return self._manifests[stream]

    def streams(self) -> list[str]:
        """The streams that the options ask for, and those among the archived."""
        found = super().streams()
        if self.options.pattern is None:
            return found
        archived = filter(self.options.includes, archived_streams(self._archive))
        return sorted({*found, *archived})

    def state(self, stream: str) -> StreamState | None:
        """What the server says of ``stream``; where it has no such key, what the archive says.

        Raises `DataLoss` for a stream that ends before its archive does.
        """
        end = self.manifest(stream).end  # before the server is asked: both only grow
        state = super().state(stream)
        if state is not None and state.last_id < end.id:
            raise set_back_behind(self.manifest(stream), state)
        return state or archived_state(self.manifest(stream))


def set_back_behind(manifest: Manifest, state: StreamState | None) -> DataLoss:
    """The error for a stream that ends before its archive does: it is another stream by now."""
    now = f"its last id is {state.last_id}" if state else "the key is gone"
    return DataLoss(
        f"stream {manifest.stream!r} was deleted, made anew or set back: it is archived up to "
        f"{manifest.end.id} ({manifest.directory}), and now {now}. Ids that came twice cannot be kept "
        "apart in one archive: give the stream another one, or move the old one away."
    )


def archived_state(manifest: Manifest) -> StreamState | None:
    """A stream of which only the archive is left, as if all of it had been trimmed."""
    end = manifest.end
    if not manifest.segments():
        return None
    return StreamState(
        length=0,
        last_id=end.id,
        max_deleted_id=MIN_ID,
        entries_added=end.added,
        first_id=MIN_ID,
    )
