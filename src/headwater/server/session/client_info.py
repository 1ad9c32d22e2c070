"""The address of a client, and the names that the client gives itself."""

from __future__ import annotations

from headwater.engine.accounts.memory_account import text_bytes


class ClientInfo:
    """Addresses and names of a client; part of a session.

    ``kind`` is ``tcp``, ``tls``, ``unix`` or ``embedded``. CLIENT LIST shows ``address`` as
    ``addr`` and ``local_address`` as ``laddr``. Times are monotonic, in seconds.
    """

    def __init__(self, kind: str, address: str, local_address: str, now: float) -> None:
        self.kind = kind
        self.address = address
        self.local_address = local_address
        self.created = self.last_interaction = now
        self.role = ""
        """``S`` for the connection of a replica, ``M`` for that to a primary, else empty: a flag of CLIENT LIST."""
        self.name = self.lib_name = self.lib_version = b""

    def names_bytes(self) -> int:
        """Return the memory of the names that the client gives itself."""
        return text_bytes(self.name) + text_bytes(self.lib_name) + text_bytes(self.lib_version)
