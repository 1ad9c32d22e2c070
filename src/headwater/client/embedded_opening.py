"""Opens the store that a ``headwater://`` url names, and finds the store behind a client."""

from __future__ import annotations

from typing import Any

from headwater.client.embedded_store import EmbeddedStore
from headwater.client.embedded_url import EXAMPLES, SCHEME, EmbeddedAddress, parse_embedded
from headwater.client.handles import StoreHandle, handle_of, open_handle
from headwater.client.redaction import redacted
from headwater.client.server_url import SERVER_EXAMPLES
from headwater.common.clock import Clock
from headwater.errors import ConfigError, StoreInUse
from headwater.journal.log.report import RecoveryReport
from headwater.server.opening import open_node, open_past
from headwater.server.turn.node import Node
from headwater.uncompiled import warn_once


def open_embedded(
    url: str | None, node: Node | None = None, clock: Clock | None = None
) -> tuple[StoreHandle, dict[str, Any]]:
    """Return a handle on an embedded store, and the client options that the url sets.

    Raises `ConfigError`. For a directory, also raises `StoreInUse`, `StoreUnusable` and `JournalDamaged`.
    """
    if node is not None:
        if url is not None or clock is not None:
            raise ConfigError("node= is a store with its own clock: remove url and clock=")
        return handle_of(node), {}
    if url is None or not url.startswith(f"{SCHEME}:"):
        wrong = "no url is given" if url is None else f"{redacted(url)!r} does not name a store"
        raise ConfigError(f"{wrong}. Write {EXAMPLES}, or for a server {SERVER_EXAMPLES}.")
    address = parse_embedded(url)
    handle = open_handle(address.key, lambda: _open(address, clock))
    try:
        _refuse_other_settings(address, clock, handle.store)
    except BaseException:
        handle.close()
        raise
    return handle, address.options


def node_of(client: Any) -> Node:
    """Return the node of an embedded store, given a client of the store (sync or asyncio).

    Raises `ConfigError` for a client of a server.
    """
    handle = _handle_behind(client)
    if handle is None:
        raise ConfigError(
            f"{client!r} is a client of a server; only a store in this process has a node"
        )
    return handle.store.node


def recovery_of(client: Any) -> RecoveryReport | None:
    """Return the recovery report of an embedded store, given a client of the store (sync or asyncio); None
    for a client of a server."""
    handle = _handle_behind(client)
    if handle is None:
        return None
    journal = handle.store.node.journal
    return RecoveryReport() if journal is None else journal.recovery.report()


def _handle_behind(client: Any) -> StoreHandle | None:
    handle = getattr(client.connection_pool, "handle", None)
    return handle if isinstance(handle, StoreHandle) else None


def _open(address: EmbeddedAddress, clock: Clock | None) -> EmbeddedStore:
    warn_once()
    try:
        if address.at_ms is not None:
            if clock is not None:
                raise ConfigError(f"{address.shown}: at= sets the clock: remove clock=")
            past, files = open_past(address.config(), address.at_ms)
            return EmbeddedStore(past, address=address.shown, past=files)
        node = open_node(address.config(), clock=clock)
    except StoreInUse as error:
        raise StoreInUse(
            f"{error} Only one process can open a directory. To share it, run "
            f"`headwater serve --dir {address.directory}` and connect over redis:// or unix://."
        ) from None
    return EmbeddedStore(node, address=address.shown)


def _refuse_other_settings(
    address: EmbeddedAddress, clock: Clock | None, store: EmbeddedStore
) -> None:
    """Raise `ConfigError` if the settings of the open store differ from ``address`` and ``clock``."""
    wanted = address.config()
    for name in address.settings:
        there, here = store.node.services.config.get(name), wanted.get(name)
        if there != here:
            raise ConfigError(
                f"{address.shown} is open in this process with {name} {there}, but {address.url!r} "
                f"requires {here}. Close the other client first, or use the same value."
            )
    if clock is not None and store.node.clock is not clock:
        raise ConfigError(
            f"{address.shown} is open in this process with another clock. Close the other client first, or "
            "use the same clock."
        )
