"""Settings of the listeners without TLS."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.kinds import FilePath, Integer, Text
from headwater.config.setting import AT_START, setting


class Permissions(Text):
    """A file's permissions, in octal."""

    def parse(self, text: str) -> str:
        if not text.isdigit() or any(digit in "89" for digit in text) or int(text, 8) > 0o777:
            raise ValueError("argument must be octal permissions, 0 to 777")
        return text


@dataclass(kw_only=True)
class ListeningConfig:
    """Settings of the addresses, ports and sockets on which the server listens."""

    port: int = setting(
        6379,
        "TCP port; 0: any free port, or none if `tls-port` is set.",
        kind=Integer(0, 65535),
    )
    bind: tuple[str, ...] = setting(
        ("127.0.0.1",),
        "Addresses to listen on; empty: none. `*` is all IPv4 addresses; `-` before an address: skipped if this machine does not have it.",
    )
    unixsocket: str = setting(
        "", "Path of a unix socket; empty for none.", kind=FilePath(), fixed_after_start=AT_START
    )
    unixsocketperm: str = setting(
        "0",
        "Permissions of the unix socket, in octal; 0: determined by the umask.",
        kind=Permissions(),
        fixed_after_start=AT_START,
    )
