"""What is known of one client: where it is, and what it says of itself."""

from __future__ import annotations


class ClientInfo:
    """Part of a session. ``kind`` is ``tcp``, ``tls``, ``unix`` or ``embedded``; ``address`` and
    ``local_address`` are what CLIENT LIST shows as ``addr`` and ``laddr``; times are monotonic."""

    def __init__(self, kind: str, address: str, local_address: str, now: float) -> None:
        self.kind = kind
        self.address = address
        self.local_address = local_address
        self.created = self.last_interaction = now
        self.name = self.lib_name = self.lib_version = b""
