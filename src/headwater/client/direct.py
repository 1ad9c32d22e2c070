"""A connection to one server without redis-py, whose import takes ten times as long as a query.

For programs that run a few commands and end. It has no pool, repeats nothing, and knows neither clusters nor TLS.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import hiredis

from headwater.common.names import bytes_of
from headwater.errors import Disconnected

_CHUNK_BYTES: Final = 262_144

PROBE_SECONDS: Final = 2.0
"""Maximum time for a server to show whether it speaks TLS, in seconds."""


class NotDirect(Exception):
    """Raised for a node of a cluster: a `DirectConnection` cannot reach the other nodes."""


class DirectConnection:
    """A connection to the server at a ``redis://``, ``valkey://`` or ``unix://`` url.

    Raises `NotDirect`, `Disconnected`, `OSError`, and what ``refused`` makes of an error reply to the greeting.
    """

    def __init__(self, url: str, *, seconds: float, refused: Callable[[str], Exception]) -> None:
        parts = urlsplit(url)
        self._seconds = seconds
        self._refused = refused
        if parts.scheme == "unix":
            self._socket = socket.socket(socket.AF_UNIX)
        else:
            place = (unquote(parts.hostname or "localhost"), parts.port or 6379)
            self._socket = socket.create_connection(place, seconds)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader(replyError=refused)
        try:
            if parts.scheme == "unix":
                self._socket.settimeout(seconds)
                self._socket.connect(unquote(parts.path))
            self._greet(parts.username, parts.password, _database(parts))
        except BaseException:
            self.close()
            raise

    def _greet(self, user: str | None, password: str | None, database: str) -> None:
        hello: list[str] = ["HELLO", "2"]
        if password is not None:
            hello += ["AUTH", unquote(user or "default"), unquote(password)]
        greeting = [hello, ["SELECT", database]] if database != "0" else [hello]
        for reply in (replies := self.exchange(greeting)):
            if isinstance(reply, Exception):
                raise reply
        about = dict(zip(replies[0][::2], replies[0][1::2], strict=True))
        if about.get(b"mode") == b"cluster":
            raise NotDirect

    def exchange(self, commands: Sequence[Sequence[str | bytes | int]]) -> list[Any]:
        """Send commands together and return their replies; for an error reply, what ``refused`` makes of it."""
        blocked = max((_block_ms(one) for one in commands), default=0)
        self._socket.settimeout(self._seconds + blocked / 1000)
        self._socket.sendall(b"".join(map(_packed, commands)))
        replies = [self._reply() for _ in commands]
        if any(isinstance(one, Exception) and str(one).startswith("LOADING") for one in replies):
            raise Disconnected("the server is loading its data")
        return replies

    def _reply(self) -> Any:
        try:
            while (found := self._reader.gets()) is False:
                data = self._socket.recv(_CHUNK_BYTES)
                if not data:
                    raise Disconnected("the server closed the connection")
                self._reader.feed(data)
        except hiredis.ProtocolError as error:
            raise Disconnected(
                f"the server there does not speak Redis's protocol: {error}"
            ) from None
        return found

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def is_direct(url: str) -> bool:
    """Return whether a `DirectConnection` can be tried: the url names one server without TLS, and has no parameters
    that only redis-py knows.

    >>> is_direct("redis://host/2"), is_direct("rediss://host"), is_direct("redis://host?protocol=3")
    (True, False, False)
    """
    try:
        parts = urlsplit(url)
        whole = parts.port is None or parts.port >= 0
    except ValueError:
        return False
    known = not parts.query or {*parse_qs(parts.query)} == {"db"}
    return (
        whole
        and known
        and parts.scheme in ("redis", "valkey", "unix")
        and "," not in parts.netloc
        and _database(parts).isdecimal()
    )


def tls_advice(url: str) -> str | None:
    """Find out whether a connection failed because only one side speaks TLS. Return advice in this case, otherwise
    None. Credentials are not sent."""
    try:
        parts = urlsplit(url)
        place = (unquote(parts.hostname or "localhost"), parts.port or 6379)
    except ValueError:
        return None
    scheme = parts.scheme
    if scheme in ("redis", "valkey") and _speaks_tls(place):
        return f"that port speaks TLS: write {scheme}s:// instead of {scheme}://"
    if scheme in ("rediss", "valkeys") and _speaks_plainly(place):
        return f"that port does not speak TLS: write {scheme[:-1]}:// instead of {scheme}://"
    return None


def _speaks_tls(place: tuple[str, int]) -> bool:
    import ssl

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = (
        False,
        ssl.CERT_NONE,
    )  # the protocol is tested, not the certificate
    try:
        with socket.create_connection(place, PROBE_SECONDS) as plain:
            context.wrap_socket(plain).close()
    except ssl.SSLError as error:
        return error.reason != "WRONG_VERSION_NUMBER" and "RECORD_LAYER" not in str(error.reason)
    except OSError:
        return False
    return True


def _speaks_plainly(place: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(place, PROBE_SECONDS) as plain:
            plain.sendall(b"PING\r\n")
            reply = plain.recv(256)
    except OSError:
        return False
    return reply[:1] in (b"+", b"-") and b"TLS" not in reply


def _database(parts: SplitResult) -> str:
    in_path = "" if parts.scheme == "unix" else parts.path.strip("/")
    return parse_qs(parts.query).get("db", [in_path or "0"])[0]


def _block_ms(command: Sequence[str | bytes | int]) -> int:
    """Return the BLOCK option of an XREAD in milliseconds; 0 without the option, and for all other commands."""
    if command[0] != "XREAD":
        return 0
    options = command[: command.index("STREAMS")]
    return int(options[options.index("BLOCK") + 1]) if "BLOCK" in options else 0


def _packed(command: Sequence[str | bytes | int]) -> bytes:
    words = [one if isinstance(one, bytes) else bytes_of(str(one)) for one in command]
    return b"".join(
        [b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(one), one) for one in words)]
    )
