"""Settings of streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater import limits
from headwater.config.kinds import I32, KIB, Choice, Integer, Memory
from headwater.config.setting import EmbeddedUse, setting
from headwater.engine.codecs import AUTO, NONE, ZLIB, ZSTD, make_codec


class Compression(Choice):
    """How blocks are compressed; a codec that is not installed is refused."""

    def parse(self, text: str) -> str:
        chosen = super().parse(text)
        if chosen != NONE:
            make_codec(chosen)
        return chosen


@dataclass(kw_only=True)
class StreamConfig:
    """How streams are kept, trimmed, claimed and dumped."""

    stream_node_max_bytes: int = setting(
        4 * KIB,
        "Bytes of a node, for trimming with `~`.",
        kind=Memory(),
        embedded=EmbeddedUse.ALWAYS,
    )
    stream_node_max_entries: int = setting(
        100, "Entries of a node, for trimming with `~`.", embedded=EmbeddedUse.ALWAYS
    )
    stream_autoclaim_scan_factor: int = setting(
        10,
        "XAUTOCLAIM looks at no more than COUNT times this; 0: no bound.",
        kind=Integer(0, I32),
        embedded=EmbeddedUse.ALWAYS,
    )
    stream_idmp_duration: int = setting(
        limits.IDMP_DURATION_S,
        "Seconds for which a new stream knows an idempotent id; XCFGSET changes it for one.",
        kind=Integer(1, limits.MAX_IDMP_DURATION_S),
    )
    stream_idmp_maxsize: int = setting(
        limits.IDMP_MAXSIZE,
        "Idempotent ids of one producer that a new stream knows; XCFGSET changes it for one.",
        kind=Integer(1, limits.MAX_IDMP_MAXSIZE),
    )
    stream_hot_bytes: int = setting(
        limits.STREAM_HOT_BYTES,
        "How much of the newest entries of all streams together stays in memory as it was written; "
        "older ones are compressed.",
        kind=Memory(),
    )
    stream_compression: str = setting(
        AUTO,
        "How older entries are compressed: auto is zstd where the package zstandard is installed, "
        "else zlib; none leaves them as they are.",
        kind=Compression(AUTO, ZSTD, ZLIB, NONE),
    )
    dump_format: Literal["8.8", "8.2", "7.0"] = setting(
        "8.8",
        "Whose form of streams DUMP writes: Redis 8.8's, one that Redis 7.2 to 8.4 and Valkey read "
        "too, or one for 7.0.",
    )
