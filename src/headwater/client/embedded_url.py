"""What a ``headwater://`` url says: which store of this process, its settings, options of the client.

    headwater:///var/lib/orders?appendfsync=always    a directory, kept on disk
    headwater://memory                                a store of one's own, gone when it is closed
    headwater://memory/orders                         the same, shared by name within the process

Only what the url says counts, not the environment: a program that opens a directory means to keep
what it writes there, whatever was set for a server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from headwater.config.config import NAMES, SETTINGS, Config
from headwater.config.loading import load
from headwater.config.setting import EmbeddedUse
from headwater.errors import ConfigError

SCHEME = "headwater"
EXAMPLES = "headwater:///path/to/directory, headwater://memory or headwater://memory/name"

_SETTINGS = [name for name, each in SETTINGS.items() if each.embedded is not EmbeddedUse.NEVER]
"""What a url can set."""

_ON_DISK = [name for name, each in SETTINGS.items() if each.embedded is EmbeddedUse.ON_DISK]
"""What it can set of a directory only."""


def _boolean(text: str) -> bool:
    if text.lower() not in {"1", "true", "yes", "0", "false", "no"}:
        raise ValueError("it is yes or no")
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
    """A store in this process. ``directory`` None is memory; ``name`` "" is a store of one's own."""

    url: str
    directory: Path | None = None
    name: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    """For redis-py's client."""

    @property
    def key(self) -> str | None:
        """What clients of this process share a store by; None for one of its own."""
        if self.directory is not None:
            return f"dir:{self.directory}"
        return f"memory:{self.name}" if self.name else None

    @property
    def shown(self) -> str:
        """What messages call the store."""
        if self.directory is not None:
            return f"{SCHEME}://{self.directory}"
        return f"{SCHEME}://memory{'/' if self.name else ''}{self.name}"

    def config(self) -> Config:
        """The settings in force. Raises `ConfigError`."""
        config = load(flags=self.settings.items(), environ={})
        config.appendonly = self.directory is not None
        if self.directory is not None:
            config.dir = str(self.directory)
        return config


def parse_embedded(url: str) -> EmbeddedAddress:
    """Read a ``headwater://`` url.

    >>> parse_embedded("headwater://memory/orders?decode_responses=yes").options
    {'decode_responses': True}

    Raises `ConfigError`, which names the url, what is wrong in it and the remedy.
    """
    parts = urlsplit(url)
    assert parts.scheme == SCHEME, "the caller looks at the scheme"
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
            f"{url!r}: {parts.netloc!r} stands where a host would, and a store in this process has "
            f"none. Write {EXAMPLES}; the directory begins with a third slash. For a server, write "
            "redis://host:port."
        )
    if not path.strip("/"):
        raise ConfigError(f"{url!r} names no directory. Write {EXAMPLES}.")
    return EmbeddedAddress(url, directory=Path(path).resolve())


def _add_parameter(address: EmbeddedAddress, name: str, text: str) -> None:
    setting = name.replace("_", "-")
    if setting in _SETTINGS and not (setting in _ON_DISK and address.directory is None):
        address.settings[setting] = text
    elif name == "name" and address.directory is None:
        address.name = text
    elif name in _CLIENT_OPTIONS:
        try:
            address.options[name] = _CLIENT_OPTIONS[name](text)
        except ValueError as error:
            raise ConfigError(f"{address.url!r}: {name} cannot be {text!r}: {error}") from None
    elif setting in NAMES:
        raise ConfigError(
            f"{address.url!r}: {setting} does nothing for {address.shown}. These settings do: "
            f"{', '.join(_SETTINGS)} ({', '.join(_ON_DISK)} with a directory)."
        )
    else:
        known = ", ".join([*_SETTINGS, "name", *_CLIENT_OPTIONS])
        raise ConfigError(f"{address.url!r}: {name!r} is no parameter. There are {known}.")
