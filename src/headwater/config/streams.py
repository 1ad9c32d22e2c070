"""Settings of streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.common import limits
from headwater.config.kinds import I32, KIB, Choice, Integer, Memory
from headwater.config.setting import EmbeddedUse, setting
from headwater.engine.bodies.codecs import AUTO, NONE, ZLIB, ZSTD, make_codec


class Compression(Choice):
    """The codec that compresses blocks. A codec that is not installed is rejected."""

    def parse(self, text: str) -> str:
        chosen = super().parse(text)
        if chosen != NONE:
            make_codec(chosen)
        return chosen


@dataclass(kw_only=True)
class StreamConfig:
    """Settings that determine how streams are stored, trimmed, claimed and dumped."""

    stream_node_max_bytes: int = setting(
        4 * KIB,
        "Maximum bytes of a node, the unit of trimming with `~`.",
        kind=Memory(),
        embedded=EmbeddedUse.ALWAYS,
    )
    stream_node_max_entries: int = setting(
        100,
        "Maximum number of entries of a node, the unit of trimming with `~`.",
        embedded=EmbeddedUse.ALWAYS,
    )
    stream_autoclaim_scan_factor: int = setting(
        10,
        "XAUTOCLAIM scans at most this many times COUNT entries; 0: no bound.",
        kind=Integer(0, I32),
        embedded=EmbeddedUse.ALWAYS,
    )
    stream_idmp_duration: int = setting(
        limits.IDMP_DURATION_S,
        "Seconds for which a new stream remembers an idempotent id; XCFGSET changes it per stream.",
        kind=Integer(1, limits.MAX_IDMP_DURATION_S),
    )
    stream_idmp_maxsize: int = setting(
        limits.IDMP_MAXSIZE,
        "Idempotent ids per producer that a new stream remembers; XCFGSET changes it per stream.",
        kind=Integer(1, limits.MAX_IDMP_MAXSIZE),
    )
    stream_hot_bytes: int = setting(
        limits.STREAM_HOT_BYTES,
        "Memory for the newest entries of all streams together, which are kept uncompressed; older "
        "entries are compressed. At most half of maxmemory, if that is set.",
        kind=Memory(),
    )
    stream_cold_cache_bytes: int = setting(
        limits.COLD_CACHE_BYTES,
        "Memory for recently read older entries of all streams together: those that were decompressed "
        "or read from disk.",
        kind=Memory(),
    )
    stream_compression: str = setting(
        AUTO,
        "Compression of older entries: auto is zstd if the package zstandard is installed, else zlib; "
        "none stores them uncompressed.",
        kind=Compression(AUTO, ZSTD, ZLIB, NONE),
    )
    dump_format: Literal["8.8", "8.2", "7.0"] = setting(
        "8.8",
        "Format of streams in DUMP: 8.8 for Redis 8.8, 8.2 also for Redis 7.2 to 8.4 and Valkey, 7.0 "
        "also for Redis 7.0.",
    )
