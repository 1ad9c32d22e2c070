"""From the bytes of a reply to a page: the only module that knows how a reply is laid out."""

from __future__ import annotations

from typing import Any, Final

import hiredis

from headwater.errors import ProtocolError
from headwater.spark.decoding.page import Page

_MORE: Final = object()


class PageDecoder:
    """Takes the bytes of replies as they arrive.

    >>> decoder = PageDecoder()
    >>> decoder.feed(b"*1\\r\\n*2\\r\\n$3\\r\\n5-1\\r\\n*2\\r\\n$1\\r\\na\\r\\n$1\\r\\nb")
    >>> decoder.feed(b"\\r\\n").column(b"a").to_pylist()
    [b'b']
    """

    def __init__(self) -> None:
        self._reader = hiredis.Reader(notEnoughData=_MORE)

    def feed(self, data: bytes) -> Page | None:
        """The page, when ``data`` was the last of it. Raises the server's error reply."""
        self._reader.feed(data)
        reply = self._reader.gets()
        if reply is _MORE:
            return None
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return page_of(reply)


def page_of(reply: Any) -> Page:
    """The entries of a parsed reply; `ProtocolError` if it is no list of entries."""
    if type(reply) is list and all(type(entry) is list and len(entry) == 2 for entry in reply):
        ids = [entry[0] for entry in reply]
        bodies = [entry[1] for entry in reply]
        if {bytes}.issuperset(map(type, ids)) and all(map(_is_body, bodies)):
            return Page(ids, bodies)
    raise ProtocolError("the server's reply is no list of entries, each an id and its fields")


def _is_body(body: Any) -> bool:
    return type(body) is list and not len(body) % 2 and {bytes}.issuperset(map(type, body))
