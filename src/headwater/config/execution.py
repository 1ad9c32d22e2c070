"""Settings of running commands: what is slow, what is kept of it, how long scripts may run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.config.kinds import Integer, Words
from headwater.config.setting import AT_START, setting


class Percentiles(Words):
    """Numbers from 0 to 100."""

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
    """How commands are timed and bounded."""

    slowlog_log_slower_than: int = setting(
        10_000,
        "Microseconds from which on a command is kept in the slow log; -1: none is.",
        kind=Integer(-1),
    )
    slowlog_max_len: int = setting(128, "Most commands in the slow log.")
    lua_time_limit: int = setting(
        5000, "Milliseconds after which a script is ended.", kind=Integer(1)
    )
    latency_monitor_threshold: int = setting(
        0, "Milliseconds from which on LATENCY keeps what held the server up; 0: nothing."
    )
    latency_tracking: bool = setting(
        False,
        "Whether to keep how long commands take, for LATENCY HISTOGRAM and INFO latencystats.",
    )
    latency_tracking_info_percentiles: tuple[str, ...] = setting(
        ("50", "99", "99.9"), "Percentiles that INFO latencystats shows.", kind=Percentiles()
    )
    enable_debug_command: Literal["no", "local", "yes"] = setting(
        "no",
        "Who may use DEBUG: nobody, clients of this machine, or everyone.",
        fixed_after_start=AT_START,
    )
