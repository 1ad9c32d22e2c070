"""From the bytes of a page to columns: the only module that knows how a reply is laid out.

A page is the reply to one XRANGE. `PageDecoder` is fed what the socket gives and says when the
reply is whole; `Page` answers by column. hiredis parses; where every entry has the same field names
in the same order, which is how a typed producer writes, columns are cut out of the flat list of all
fields in steps that run in C.
"""

from __future__ import annotations

from itertools import accumulate, chain
from typing import Any, Final

import hiredis

from headwater.messages import is_reserved

_MORE: Final = object()


class PageDecoder:
    """Takes the bytes of replies as they arrive.

    >>> decoder = PageDecoder()
    >>> decoder.feed(b"*1\\r\\n*2\\r\\n$3\\r\\n5-1\\r\\n*2\\r\\n$1\\r\\na\\r\\n$1\\r\\nb")
    >>> decoder.feed(b"\\r\\n").column(b"a")
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
        return Page(reply)


class Page:
    """Entries in the order of their ids.

    ``ids`` are as the server wrote them, ``bodies`` the fields of each as a flat list of names and
    values. A name that an entry repeats stands for its last value.
    """

    def __init__(self, entries: list[Any]) -> None:
        self.ids: list[bytes] = [entry[0] for entry in entries]
        self.bodies: list[list[bytes]] = [entry[1] for entry in entries]
        self._names: list[bytes] | None = None
        self._flat: list[bytes] = []
        self._dicts: list[dict[bytes, bytes]] | None = None
        if entries:
            self._find_regular()

    def __len__(self) -> int:
        return len(self.ids)

    def _find_regular(self) -> None:
        names = self.bodies[0][::2]
        if len(set(names)) < len(names):
            return
        flat = list(chain.from_iterable(self.bodies))
        if len(flat) == 2 * len(names) * len(self) and flat[::2] == names * len(self):
            self._names, self._flat = names, flat

    def column(self, name: bytes) -> list[bytes | None]:
        """The value of field ``name`` in each entry, None where it is missing."""
        if self._names is not None:
            if name not in self._names:
                return [None] * len(self)
            place = self._names.index(name)
            return list(self._flat[2 * place + 1 :: 2 * len(self._names)])
        if self._dicts is None:
            self._dicts = [dict(zip(body[::2], body[1::2], strict=True)) for body in self.bodies]
        return [values.get(name) for values in self._dicts]

    def pairs(self, *, reserved: bool) -> tuple[list[int], list[bytes], list[bytes]]:
        """All fields as one column of maps: where each entry's begin (and the end of all), names,
        values. Reserved fields are left out unless ``reserved``."""
        if self._names is not None and (reserved or not any(map(is_reserved, self._names))):
            step = len(self._names)
            starts = list(range(0, step * len(self) + 1, step)) if step else [0] * (len(self) + 1)
            return starts, self._flat[::2], self._flat[1::2]
        dicts = [
            {
                name: value
                for name, value in zip(body[::2], body[1::2], strict=True)
                if reserved or not is_reserved(name)
            }
            for body in self.bodies
        ]
        starts = list(accumulate(map(len, dicts), initial=0))
        names = list(chain.from_iterable(dicts))
        return starts, names, [value for values in dicts for value in values.values()]
