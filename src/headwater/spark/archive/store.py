"""The client of readers with an archive: archived entries are available even if the stream's key is gone."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.common.model import MIN_ID
from headwater.errors import DataLoss
from headwater.spark.archive.manifest import Manifest, archived_streams
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.positions import Position, StreamState
from headwater.spark.core.store import SourceStore


class ArchiveStore(SourceStore):
    """A server together with an archive."""

    def __init__(self, options: SourceOptions) -> None:
        assert options.archive is not None
        super().__init__(options)
        self._archive = options.archive
        self._manifests: dict[str, Manifest] = {}

    def manifest(self, stream: str) -> Manifest:
        """Return the manifest of ``stream``, which is always the same object and reads its file after a change."""
        if stream not in self._manifests:
            self._manifests[stream] = Manifest(self._archive, stream)
        return self._manifests[stream]

    def streams(self) -> list[str]:
        """Return the streams that the options include, on the server or in the archive."""
        found = super().streams()
        if self.options.pattern is None:
            return found
        archived = filter(self.options.includes, archived_streams(self._archive))
        return sorted({*found, *archived})

    def states(self, streams: Iterable[str]) -> dict[str, StreamState | None]:
        """Return the state of each stream from the server or, if the key does not exist, from the archive.

        Raises `DataLoss` for a stream that ends before its archive.
        """
        # Archives are read before the server: ends and states only grow, so a state must reach the end.
        ends = {stream: self.manifest(stream).end for stream in streams}
        return {
            stream: self._or_archived(stream, state, ends[stream])
            for stream, state in super().states(ends).items()
        }

    def state(self, stream: str) -> StreamState | None:
        """Return `states` of one stream."""
        end = self.manifest(stream).end
        return self._or_archived(stream, super().state(stream), end)

    def _or_archived(
        self, stream: str, state: StreamState | None, end: Position
    ) -> StreamState | None:
        if state is not None and state.last_id < end.id:
            raise set_back_behind(self.manifest(stream), state)
        return state or archived_state(self.manifest(stream))


def set_back_behind(manifest: Manifest, state: StreamState | None) -> DataLoss:
    """Return the error for a stream that ends before its archive, and is therefore a different stream now."""
    now = f"its last id is {state.last_id}" if state else "the key is gone"
    return DataLoss(
        f"stream {manifest.stream!r} was deleted, recreated or set back: it is archived up to "
        f"{manifest.end.id} ({manifest.directory}), but now {now}. One archive cannot hold two entries "
        "with the same id: set another archive for the stream, or move the old one away."
    )


def archived_state(manifest: Manifest) -> StreamState | None:
    """Return the state of a fully trimmed stream that ends where its archive does; None if it has no archive."""
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
