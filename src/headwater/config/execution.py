"""Settings of command execution: slow log, latency, run time of scripts, DEBUG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.config.kinds import Integer, Words
from headwater.config.setting import AT_START, setting


class Percentiles(Words):
    """Percentages from 0 to 100."""

    def parse(self, text: str) -> tuple[str, ...]:
        try:
            found = [float(word) for word in text.split()]
        except ValueError:
            raise ValueError("Invalid latency-tracking-info-percentiles parameters") from None
        if not all(0.0 <= percent <= 100.0 for percent in found):
            raise ValueError(
                "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
            )
        return tuple(f"{percent:.6f}".rstrip("0").rstrip(".") for percent in found)


@dataclass(kw_only=True)
class ExecutionConfig:
    """Settings that control how the execution of commands is measured and limited."""

    slowlog_log_slower_than: int = setting(
        10_000,
        "Minimum duration of a command in the slow log, in microseconds; -1: none is recorded.",
        kind=Integer(-1),
    )
    slowlog_max_len: int = setting(128, "Maximum number of entries of the slow log.")
    lua_time_limit: int = setting(
        5000, "Milliseconds after which a script is stopped.", kind=Integer(1)
    )
    latency_monitor_threshold: int = setting(
        0, "Minimum delay of the server that LATENCY records, in milliseconds; 0: none is recorded."
    )
    latency_tracking: bool = setting(
        False,
        "Measure the latency of commands, for LATENCY HISTOGRAM and INFO latencystats.",
    )
    latency_tracking_info_percentiles: tuple[str, ...] = setting(
        ("50", "99", "99.9"), "Percentiles that INFO latencystats shows.", kind=Percentiles()
    )
    enable_debug_command: Literal["no", "local", "yes"] = setting(
        "no",
        "Clients that may use DEBUG: none (no), those on this machine (local), or all (yes).",
        fixed_after_start=AT_START,
    )
    enable_protected_configs: Literal["no", "local", "yes"] = setting(
        "no",
        "Clients that may set `dbfilename`, which has no effect; values as for `enable-debug-command`.",
        fixed_after_start=AT_START,
    )
