"""Parses the bytes of a reply, as they arrive, into a page.

If cutting.py is compiled, it cuts a reply as long as the reply is regular. At the first irregular byte, all bytes
so far and all later bytes go to hiredis, which parses them or reports the error. If cutting.py is not compiled,
hiredis parses every reply, because hiredis is faster than cutting in plain Python.
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
"""True if replies are cut, which is faster only in compiled modules."""

_FIRST_BYTES: Final = 64 * 1024
_LEAST_ROOM: Final = 16 * 1024
_MORE: Final = object()


class PageDecoder:
    """Parses one reply after another. The next reply may be requested when the current one is complete.

    >>> decoder = PageDecoder()
    >>> decoder.feed(b"*1\\r\\n*2\\r\\n$3\\r\\n5-1\\r\\n*2\\r\\n$1\\r\\na\\r\\n$1\\r\\nb")
    >>> decoder.feed(b"\\r\\n").column(b"a").to_pylist()
    [b'b']

    The caller receives bytes into `room` and passes their number to `received`. ``cut=False`` leaves all
    parsing to hiredis.
    """

    def __init__(self, *, cut: bool = FASTER) -> None:
        self._cut = cut
        self._size = _FIRST_BYTES
        self.weight = 0
        """The size in bytes of the current reply so far or, between replies, of the last complete reply."""
        self._begin()

    def _begin(self) -> None:
        # A page refers to its reply's bytes, so each reply has its own buffer, sized by the last reply.
        self._buffer = bytearray(self._size)
        self._cutter: ReplyCutter | None = ReplyCutter() if self._cut else None
        self._reader: hiredis.Reader | None = None if self._cut else _reader()
        self._whole = False

    def feed(self, data: bytes) -> Page | None:
        """Add ``data``; return the page if ``data`` completes the reply, else None."""
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
        """Return the buffer for the next bytes."""
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
        """Process ``size`` bytes that arrived in `room`; return the page if they complete the reply, else None.

        Raises `hiredis.ReplyError` for an error reply, and `ProtocolError` for bytes that are not a list
        of entries.
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
            # TypeError: a map or a set with members that Python cannot hash.
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
        # The next reply probably has a similar size, so its buffer is not much larger.
        self._size = max(_FIRST_BYTES, self.weight + self.weight // 8 + _LEAST_ROOM)
        return page


def _reader() -> hiredis.Reader:
    return hiredis.Reader(notEnoughData=_MORE)


def _surplus() -> ProtocolError:
    return ProtocolError("the server sent more than the requested reply")


def page_of(reply: Any) -> Page:
    """Return the entries of a parsed reply. Raises `ProtocolError` if it is not a list of entries."""
    if type(reply) is list and all(type(entry) is list and len(entry) == 2 for entry in reply):
        ids = [entry[0] for entry in reply]
        bodies = [entry[1] for entry in reply]
        if {bytes}.issuperset(map(type, ids)) and all(map(_is_body, bodies)):
            return ListPage(ids, bodies)
    raise ProtocolError("the server's reply is not a list of entries, each an id and its fields")


def _is_body(body: Any) -> bool:
    return type(body) is list and not len(body) % 2 and {bytes}.issuperset(map(type, body))
