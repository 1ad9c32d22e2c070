"""Settings of the server's process: its log, its metrics and its service manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.config.kinds import FilePath
from headwater.config.setting import AT_START, ONLY_AT_START, setting


@dataclass(kw_only=True)
class ProcessConfig:
    """Where the server logs, and which service manager it notifies."""

    loglevel: Literal["debug", "verbose", "notice", "warning", "nothing"] = setting(
        "notice", "Minimum level of the messages that are logged."
    )
    logfile: str = setting(
        "",
        "File of the log; empty: standard error. SIGHUP reopens it.",
        kind=FilePath(),
        fixed_after_start=AT_START,
    )
    log_format: Literal["text", "json"] = setting(
        "text", "Format of the log: lines of text, or one JSON object per line."
    )
    metrics: str = setting(
        "",
        "HOST:PORT at which metrics for Prometheus, /healthz and /readyz are served; empty: none. "
        "Needs the extra metrics.",
        fixed_after_start=ONLY_AT_START,
    )
    supervised: Literal["auto", "systemd", "no"] = setting(
        "auto",
        "Whether to notify systemd of start, reload and stop: auto does if systemd sets "
        "NOTIFY_SOCKET.",
        fixed_after_start=AT_START,
    )
