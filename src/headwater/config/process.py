"""Settings of the server's process: its log, its metrics and its service manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.config.kinds import FilePath
from headwater.config.setting import AT_START, ONLY_AT_START, setting


@dataclass(kw_only=True)
class ProcessConfig:
    """Settings of the log, the metrics and the service manager."""

    loglevel: Literal["debug", "verbose", "notice", "warning", "nothing"] = setting(
        "notice", "Minimum level of logged messages."
    )
    logfile: str = setting(
        "",
        "Log file; empty: standard error. SIGHUP reopens it.",
        kind=FilePath(),
        fixed_after_start=AT_START,
    )
    log_format: Literal["text", "json"] = setting(
        "text", "Format of the log: lines of text, or one JSON object per line."
    )
    metrics: str = setting(
        "",
        "HOST:PORT that serves metrics for Prometheus, /healthz and /readyz; empty: none. Requires "
        "the extra `metrics`.",
        fixed_after_start=ONLY_AT_START,
    )
    supervised: Literal["auto", "systemd", "no"] = setting(
        "auto",
        "Service manager to notify of start, reload and stop; auto: systemd if it sets "
        "NOTIFY_SOCKET.",
        fixed_after_start=AT_START,
    )
