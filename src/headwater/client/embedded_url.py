"""Parses ``headwater://`` urls: the embedded store, its settings, and options of the client.

    headwater:///var/lib/orders?appendfsync=always    a store in a directory on disk
    headwater:///backup?at=2026-11-23T09:30:00Z       a store as of a past time, read-only
    headwater://memory                                a private store in memory, lost when it is closed
    headwater://memory/orders                         a store in memory, shared by name in this process

Settings come only from the url, not from the environment. A program that opens a directory expects its
data to be durable there, regardless of what the environment sets for a server.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from headwater.common.moments import iso_time, milliseconds_of
from headwater.config.config import NAMES, SETTINGS, Config
from headwater.config.loading import load
from headwater.config.setting import EmbeddedUse
from headwater.errors import ConfigError, HeadwaterError

SCHEME = "headwater"
EXAMPLES = "headwater:///path/to/directory, headwater://memory or headwater://memory/name"

_SETTINGS = [name for name, each in SETTINGS.items() if each.embedded is not EmbeddedUse.NEVER]
"""Names of the settings that a url may have."""

_ON_DISK = [name for name, each in SETTINGS.items() if each.embedded is EmbeddedUse.ON_DISK]
"""Names of the settings that a url may have only for a directory."""


def _boolean(text: str) -> bool:
    if text.lower() not in {"1", "true", "yes", "0", "false", "no"}:
        raise ValueError("it must be yes or no")
    return text.lower() in {"1", "true", "yes"}


_CLIENT_OPTIONS: dict[str, Callable[[str], Any]] = {
    "client_name": str,
    "db": int,
    "decode_responses": _boolean,
    "encoding": str,
    "legacy_responses": _boolean,
    "max_connections": int,
    "protocol": int,
    "socket_timeout": float,
}


@dataclass
class EmbeddedAddress:
    """Address of an embedded store: in ``directory``, or in memory if ``directory`` is None. A store in
    memory with an empty ``name`` is not shared with other clients."""

    url: str
    directory: Path | None = None
    name: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    """Options of redis-py's client."""
    at_ms: int | None = None
    """The moment as of which the store is read, in Unix milliseconds; None for the store itself."""

    @property
    def key(self) -> str | None:
        """Key under which clients of this process share the store; None for a store that is not shared."""
        if self.directory is not None:
            return f"dir:{self.directory}{self._moment}"
        return f"memory:{self.name}" if self.name else None

    @property
    def shown(self) -> str:
        """The store's address in messages."""
        if self.directory is not None:
            return f"{SCHEME}://{self.directory}{self._moment}"
        return f"{SCHEME}://memory{'/' if self.name else ''}{self.name}"

    @property
    def _moment(self) -> str:
        return "" if self.at_ms is None else f"?at={iso_time(self.at_ms)}"

    def config(self) -> Config:
        """Return the store's configuration. Raises `ConfigError`."""
        config = load(flags=self.settings.items(), environ={})
        config.appendonly = self.directory is not None
        if self.directory is None:
            config.save = ()
        else:
            config.dir = str(self.directory)
        return config


def parse_embedded(url: str) -> EmbeddedAddress:
    """Parse a ``headwater://`` url.

    >>> parse_embedded("headwater://memory/orders?decode_responses=yes").options
    {'decode_responses': True}

    Raises `ConfigError`, which names the url, the fault and the remedy.
    """
    parts = urlsplit(url)
    assert parts.scheme == SCHEME, "the caller checks the scheme"
    address = _place(url, parts)
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        _add_parameter(address, name, text)
    return address


def _place(url: str, parts: SplitResult) -> EmbeddedAddress:
    path = unquote(parts.path)
    if parts.netloc == "memory":
        return EmbeddedAddress(url, name=path.strip("/"))
    if parts.netloc:
        raise ConfigError(
            f"{url!r}: {parts.netloc!r} is in the place of a host, and a store in this process has no "
            f"host. Write {EXAMPLES}; the directory begins with a third slash. For a server, write "
            "redis://host:port."
        )
    if not path.strip("/"):
        raise ConfigError(f"{url!r} does not name a directory. Write {EXAMPLES}.")
    return EmbeddedAddress(url, directory=Path(os.path.realpath(path)))


def _add_parameter(address: EmbeddedAddress, name: str, text: str) -> None:
    setting = name.replace("_", "-")
    if setting in _SETTINGS and not (setting in _ON_DISK and address.directory is None):
        address.settings[setting] = text
    elif name == "name" and address.directory is None:
        address.name = text
    elif name == "at" and address.directory is not None:
        try:
            address.at_ms = milliseconds_of(text, f"{address.url!r}: at")
        except HeadwaterError as error:
            raise ConfigError(str(error)) from None
    elif name in _CLIENT_OPTIONS:
        try:
            address.options[name] = _CLIENT_OPTIONS[name](text)
        except ValueError as error:
            raise ConfigError(f"{address.url!r}: {name} cannot be {text!r}: {error}") from None
    elif setting in NAMES:
        raise ConfigError(
            f"{address.url!r}: {setting} has no effect for {address.shown}. Settings that have one: "
            f"{', '.join(_SETTINGS)} ({', '.join(_ON_DISK)} with a directory)."
        )
    else:
        known = ", ".join([*_SETTINGS, "name", "at", *_CLIENT_OPTIONS])
        raise ConfigError(f"{address.url!r}: unknown parameter {name!r}. Parameters: {known}.")
