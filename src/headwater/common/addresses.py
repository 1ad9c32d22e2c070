"""Addresses as text: ``HOST:PORT``."""

from __future__ import annotations

from headwater.errors import ListenError


def host_and_port(text: str, option: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``. Raises `ListenError`, which names ``option``.

    >>> host_and_port("127.0.0.1:9121", "--listen"), host_and_port("[::1]:9121", "--listen")
    (('127.0.0.1', 9121), ('::1', 9121))
    """
    host, _colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise ListenError(f"{option}: {text!r} is not HOST:PORT, such as 127.0.0.1:9121")
    return host, int(port)


def address_text(host: str, port: int) -> str:
    """Return ``HOST:PORT``, with an IPv6 address in brackets.

    >>> address_text("localhost", 9121), address_text("::1", 9121)
    ('localhost:9121', '[::1]:9121')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
