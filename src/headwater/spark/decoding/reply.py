"""From the bytes of a reply, as they arrive, to a page.

A reply that begins regularly is cut where cutting.py is compiled. The first byte that is not regular
hands everything so far to hiredis, and what follows as well: it parses, or says what is wrong. Where
cutting.py is not compiled, hiredis does all of it, since that is faster than the same in plain Python.
"""

from __future__ import annotations

from typing import Any, Final

import hiredis

from headwater.errors import ProtocolError
from headwater.spark.decoding import numbers
from headwater.spark.decoding.cut_page import CutPage
from headwater.spark.decoding.cutting import ODD, WHOLE, ReplyCutter
from headwater.spark.decoding.page import ListPage, Page

FASTER: Final = numbers.COMPILED
"""Whether replies are cut here."""

_FIRST_BYTES: Final = 64 * 1024
_LEAST_ROOM: Final = 16 * 1024
_MORE: Final = object()


class PageDecoder:
    """Takes replies one after the other; the next is asked for when one is whole.

    >>> decoder = PageDecoder()
    >>> decoder.feed(b"*1\\r\\n*2\\r\\n$3\\r\\n5-1\\r\\n*2\\r\\n$1\\r\\na\\r\\n$1\\r\\nb")
    >>> decoder.feed(b"\\r\\n").column(b"a").to_pylist()
    [b'b']

    A socket receives into `room`, and `received` is told how many bytes came. ``cut=False`` leaves
    everything to hiredis.
    """

    def __init__(self, *, cut: bool = FASTER) -> None:
        self._cut = cut
        self._size = _FIRST_BYTES
        self.weight = 0
        """Bytes of the reply so far; of the last one, when it is whole."""
        self._begin()

    def _begin(self) -> None:
        # A page keeps its reply's bytes, so each reply has a buffer of its own, as large as the last.
        self._buffer = bytearray(self._size)
        self._cutter: ReplyCutter | None = ReplyCutter() if self._cut else None
        self._reader: hiredis.Reader | None = None if self._cut else _reader()
        self._whole = False

    def feed(self, data: bytes) -> Page | None:
        """The page, when ``data`` was the last of it."""
        rest = memoryview(data)
        page = None
        while rest:
            room = self.room()
            taken = min(len(room), len(rest))
            room[:taken] = rest[:taken]
            if page is not None:
                raise _surplus()
            page = self.received(taken)
            rest = rest[taken:]
        return page

    def room(self) -> memoryview:
        """Where the next bytes belong."""
        if self._whole:
            self._begin()
            self.weight = 0
        used = self.weight if self._cutter else 0
        if len(self._buffer) - used < _LEAST_ROOM:
            larger = bytearray(2 * len(self._buffer))
            larger[:used] = memoryview(self._buffer)[:used]
            self._buffer = larger
        return memoryview(self._buffer)[used:]

    def received(self, size: int) -> Page | None:
        """The page, when the ``size`` bytes that came into `room` were the last of it.

        Raises `hiredis.ReplyError` for the server's error reply, `ProtocolError` for bytes that are no
        list of entries.
        """
        begin = self.weight if self._cutter else 0
        self.weight += size
        if self._cutter:
            found = self._cutter.scan(self._buffer, self.weight)
            if found == WHOLE:
                return self._finish(CutPage(self._cutter), surplus=self.weight > self._cutter.end)
            if found != ODD:
                return None
            self._cutter, self._reader, begin = None, _reader(), 0
            size = self.weight
        assert self._reader is not None
        try:
            self._reader.feed(bytes(memoryview(self._buffer)[begin : begin + size]))
            reply = self._reader.gets()
        except (hiredis.ProtocolError, TypeError) as error:
            # TypeError: a map or a set of what cannot be in one.
            raise ProtocolError(f"the server's reply is malformed: {error}") from None
        if reply is _MORE:
            return None
        if isinstance(reply, hiredis.ReplyError):
            self._whole = True
            raise reply
        return self._finish(page_of(reply), surplus=self._reader.has_data())

    def _finish(self, page: Page, *, surplus: bool) -> Page:
        if surplus:
            raise _surplus()
        self._whole = True
        # The next one will be about as large; what is much larger than that is not held for it.
        self._size = max(_FIRST_BYTES, self.weight + self.weight // 8 + _LEAST_ROOM)
        return page


def _reader() -> hiredis.Reader:
    return hiredis.Reader(notEnoughData=_MORE)


def _surplus() -> ProtocolError:
    return ProtocolError("the server sent more than the reply that it was asked for")


def page_of(reply: Any) -> Page:
    """The entries of a parsed reply; `ProtocolError` if it is no list of entries."""
    if type(reply) is list and all(type(entry) is list and len(entry) == 2 for entry in reply):
        ids = [entry[0] for entry in reply]
        bodies = [entry[1] for entry in reply]
        if {bytes}.issuperset(map(type, ids)) and all(map(_is_body, bodies)):
            return ListPage(ids, bodies)
    raise ProtocolError("the server's reply is no list of entries, each an id and its fields")


def _is_body(body: Any) -> bool:
    return type(body) is list and not len(body) % 2 and {bytes}.issuperset(map(type, body))
