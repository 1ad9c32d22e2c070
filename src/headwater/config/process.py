"""Settings of the server's process: its log and its supervisor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.config.setting import AT_START, setting


@dataclass(kw_only=True)
class ProcessConfig:
    """Where the server logs, and who is told of its state."""

    loglevel: Literal["debug", "verbose", "notice", "warning", "nothing"] = setting(
        "notice", "What is logged."
    )
    logfile: str = setting(
        "",
        "Where the log goes; empty: standard error. SIGHUP opens it again.",
        fixed_after_start=AT_START,
    )
    log_format: Literal["text", "json"] = setting(
        "text", "Lines of the log: text, or one JSON object each."
    )
    supervised: Literal["auto", "systemd", "no"] = setting(
        "auto",
        "Whether systemd is told of start, reload and stop: auto does so when it asks "
        "(NOTIFY_SOCKET).",
        fixed_after_start=AT_START,
    )
