"""`ReplyCutter`: cuts the columns of a regular XRANGE reply from its bytes, without an object for each value.

A reply to XRANGE is *regular* if every entry has the same field names in the same order, as typed
producers write them:

    *3\\r\\n  *2\\r\\n$3\\r\\n 5-1 \\r\\n*4\\r\\n$1\\r\\na\\r\\n$2\\r\\n xy \\r\\n$1\\r\\nb\\r\\n$1\\r\\n z \\r\\n*2 …
                        └id┘                         └a┘                       └b┘

The bytes between the values, except for the length before each value, are the same in all entries. They are
called *separators*. The cutter learns them from the first entry and requires them in every later one. So each
length header, array count, field name and CRLF is compared, and hiredis would parse every accepted reply to
the same values.

Rule 1. Every other reply is ODD: different, repeated or missing names, nil, an error, RESP3's types, lengths
        in an unusual form, malformed bytes. hiredis parses all of these (reply.py), so there is only one
        implementation of the unusual cases.
Rule 2. ODD is returned as soon as a byte is wrong. MORE means that all bytes so far begin a regular reply.
Rule 3. A scan continues where the last one ended: a reply of n bytes costs O(n), in any number of pieces.
Rule 4. Memory is allocated only for bytes that have arrived, never for what a header announces.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

try:
    import cython
except ImportError:
    from headwater import _cython as cython

MORE = -1
"""The bytes so far begin a regular reply."""
ODD = -2
"""The reply is not regular."""
WHOLE = 1
"""The reply is regular and complete."""

MOST_BYTES = 2**31 - 1
"""Arrow's offsets are int32, so a longer reply is not cut."""

_CR = 0x0D
_LF = 0x0A
_STAR = 0x2A
_DOLLAR = 0x24
_ZERO = 0x30
_MOST_DIGITS = 9
"""Maximum number of digits of a length or count, so that it fits in an int32."""
_MOST_FIELDS = 1000
"""Maximum number of fields: the first entry is read from its start each time more of it arrives."""
_FIRST_MARKS = 1024
"""Number of parts after the first entry for which room is allocated at first."""

if not cython.compiled:  # the .pxd file has C versions

    def same(buffer: bytearray, at: int, other: bytes, start: int, length: int) -> bool:
        """Return whether ``length`` bytes of ``buffer`` from ``at`` equal ``other`` from ``start``."""
        return buffer[at : at + length] == other[start : start + length]

    def copy(target: bytearray, at: int, source: bytearray, start: int, length: int) -> None:
        """Copy ``length`` bytes of ``source`` from ``start`` into ``target`` at ``at``."""
        target[at : at + length] = source[start : start + length]


def repeated(lengths: list[int], times: int) -> bytearray:
    """Return the offsets (int32) of values whose ``lengths`` repeat ``times`` times.

    >>> memoryview(repeated([1, 3], 2)).cast("i").tolist()
    [0, 1, 4, 5, 8]
    """
    each = len(lengths)
    steps = array("q", lengths)
    offsets = bytearray(4 * (each * times + 1))
    places, chosen = memoryview(offsets).cast("i"), steps
    at = value = 0
    for _ in range(times):
        for index in range(each):
            at += chosen[index]
            value += 1
            places[value] = at
    return offsets


class ReplyCutter:
    """Parses one reply while it arrives.

    >>> cutter = ReplyCutter()
    >>> wire = b"*1\\r\\n*2\\r\\n$3\\r\\n5-1\\r\\n*2\\r\\n$1\\r\\na\\r\\n$2\\r\\nxy\\r\\n"
    >>> cutter.scan(bytearray(wire), len(wire) - 1) == MORE
    True
    >>> cutter.scan(bytearray(wire), len(wire)) == WHOLE
    True
    >>> cutter.names, cutter.value(0, 0), cutter.value(0, 1)
    ([b'a'], b'5-1', b'xy')

    A *part* is one of an entry's own values: part 0 is its id, part i the value of field i.
    """

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.names: list[bytes] = []
        self.count = -1  # the entries that the reply announces; -1 until its header has arrived
        self.end = 0  # the end of the reply; 0 until it is complete
        self._parts = 0  # the number of parts of each entry; 0 until the first entry is parsed
        self._position = (
            0  # the end of the last value found; before that, the start of the next header
        )
        self._start = 0  # the beginning of the value that _bulk last read
        self._next = 0  # the position after what _number or _bulk last read
        self._known = 0  # the number of parts found so far, of all entries
        self._separators = b""
        self._separator_starts: array[int] = array("q", [0])  # and the end of the last one
        self._marks: array[int] = array("I", [0])  # start and end of each part in the buffer

    def scan(self, buffer: bytearray, size: int) -> int:
        """Continue with the first ``size`` bytes of ``buffer``; return WHOLE, MORE or ODD.

        ``buffer`` holds the reply from its beginning. It may be a new object in each call. Results are cut from the
        last one.
        """
        self.buffer = buffer
        assert size <= len(buffer)
        if size > MOST_BYTES:
            return ODD
        if self.count < 0:
            count = self._number(_STAR, 0, size)
            if count < 0:
                return count
            self.count, self._position = count, self._next
        if self.count == 0:
            self._parts = 1
            self.end = self._position
            return WHOLE
        if self._parts == 0:
            found = self._parse_first_entry(size)
            if found < 0:
                return found
        return self._scan_entries(size)

    def _number(self, mark: int, at: int, size: int) -> int:
        """Return the number in the header at ``at``, which must begin with the byte ``mark``, or MORE or ODD. Sets
        ``_next`` to the header's end."""
        buffer = self.buffer
        if at >= size:
            return MORE
        if buffer[at] != mark:
            return ODD
        at += 1
        first = at
        number = 0
        while at < size:
            digit = buffer[at] - _ZERO
            if digit < 0 or digit > 9:
                break
            if at - first == _MOST_DIGITS or (number == 0 and at > first):
                return ODD
            number = number * 10 + digit
            at += 1
        if at < size and (at == first or buffer[at] != _CR):
            return ODD
        if at + 1 >= size:
            return MORE
        self._next = at + 2
        return number if buffer[at + 1] == _LF else ODD

    def _bulk(self, at: int, size: int) -> int:
        """Return the end of the value whose header is at ``at``, or MORE or ODD. Sets ``_start`` to the value's
        beginning and ``_next`` to the position after its CRLF."""
        length = self._number(_DOLLAR, at, size)
        if length < 0:
            return length
        start = self._next
        end = start + length
        if end < size and self.buffer[end] != _CR:
            return ODD
        if end + 1 >= size:
            return MORE
        if self.buffer[end + 1] != _LF:
            return ODD
        self._start = start
        self._next = end + 2
        return end

    def _parse_first_entry(self, size: int) -> int:
        """Read the first entry: its parts, its field names and the separators of all entries. Returns WHOLE, MORE or
        ODD. After MORE, the next call reads the entry from its start."""
        words = self._number(_STAR, self._position, size)
        if words != 2:
            return words if words < 0 else ODD
        end = self._bulk(self._next, size)
        if end < 0:
            return end
        marks = [self._start, end]
        words = self._number(_STAR, self._next, size)
        if words < 0:
            return words
        if words == 0 or words % 2 or words > 2 * _MOST_FIELDS:
            return ODD
        names: list[bytes] = []
        for word in range(words):
            end = self._bulk(self._next, size)
            if end < 0:
                return end
            if word % 2:
                marks += (self._start, end)
            else:
                names.append(bytes(self.buffer[self._start : end]))
        if len(set(names)) < len(names):
            return ODD
        self.names = names
        self._parts = 1 + len(names)
        self._set_separators(names)
        self._marks = array("I", marks + [0] * (2 * _FIRST_MARKS))
        self._known = self._parts
        self._position = end
        return WHOLE

    def _set_separators(self, names: list[bytes]) -> None:
        """Store the bytes before each part's length: from the end of the previous part to the ``$``."""
        separators = [b"\r\n*2\r\n$"]
        separators += [b"\r\n$%d\r\n%b\r\n$" % (len(name), name) for name in names]
        separators[1] = b"\r\n*%d" % (2 * len(names)) + separators[1]
        self._separators = b"".join(separators)
        starts = array("q", [0])
        for separator in separators:
            starts.append(starts[-1] + len(separator))
        self._separator_starts = starts

    def _scan_entries(self, size: int) -> int:
        """Find the parts of the entries after the first. Returns WHOLE, MORE or ODD."""
        view, separators, starts, marks = (
            self.buffer,
            self._separators,
            self._separator_starts,
            self._marks,
        )
        position, known, parts = self._position, self._known, self._parts
        total = self.count * parts
        room = len(marks)
        part = known % parts
        found = WHOLE
        while known < total:
            start = starts[part]
            length = starts[part + 1] - start
            if position + length > size:
                length = size - position
                found = MORE if same(view, position, separators, start, length) else ODD
                break
            if not same(view, position, separators, start, length):
                found = ODD
                break
            length = self._number(_DOLLAR, position + length - 1, size)
            start = self._next
            if length < 0 or start + length > size:
                found = min(length, MORE)
                break
            if 2 * known == room:
                self._grow()
                marks = self._marks
                room = len(marks)
            marks[2 * known] = start
            marks[2 * known + 1] = position = start + length
            known += 1
            part = part + 1 if part + 1 < parts else 0
        self._position, self._known = position, known
        return self._check_end(size) if found == WHOLE else found

    def _grow(self) -> None:
        """Double the room for marks."""
        self._marks = array("I", self._marks) + array("I", bytes(4 * len(self._marks)))

    def _check_end(self, size: int) -> int:
        """Check the CRLF after the last value. Returns WHOLE, MORE or ODD."""
        buffer, position = self.buffer, self._position
        if position < size and buffer[position] != _CR:
            return ODD
        if position + 1 >= size:
            return MORE
        if buffer[position + 1] != _LF:
            return ODD
        self.end = position + 2
        return WHOLE

    # --- results ----------------------------------------------------------------------------------

    def value(self, entry: int, part: int) -> bytes:
        """Return one part of one entry."""
        assert 0 <= entry < self.count
        assert 0 <= part < self._parts
        place = 2 * (entry * self._parts + part)
        return bytes(self.buffer[self._marks[place] : self._marks[place + 1]])

    def cut(self, parts: Iterable[int]) -> tuple[bytearray, bytearray]:
        """Return the values of ``parts`` of all entries, entry by entry, as an Arrow binary column.

        The result is its offsets (int32), including the end of the last value, and its bytes.
        """
        assert self.end, "the reply is not complete"
        wanted = array("q", parts)
        assert all(0 <= part < self._parts for part in wanted)
        each = len(wanted)
        values = self.count * each
        offsets = bytearray(4 * (values + 1))
        data = bytearray(self._measure(wanted, each, memoryview(offsets).cast("i")))
        if data:
            self._copy(wanted, each, data)
        return offsets, data

    def _measure(self, wanted: array[int], each: int, offsets: memoryview) -> int:
        """Write the values' offsets into ``offsets``; return the sum of their lengths."""
        marks, parts, chosen, places, count = self._marks, self._parts, wanted, offsets, self.count
        total = value = 0
        for entry in range(count):
            for index in range(each):
                place = 2 * (entry * parts + chosen[index])
                places[value] = total
                total += marks[place + 1] - marks[place]
                value += 1
        places[value] = total
        return total

    def _copy(self, wanted: array[int], each: int, data: bytearray) -> None:
        """Copy the values' bytes into ``data``, one after the other."""
        marks, parts, chosen, count = self._marks, self._parts, wanted, self.count
        view, target = self.buffer, data
        at = 0
        for entry in range(count):
            for index in range(each):
                place = 2 * (entry * parts + chosen[index])
                start = marks[place]
                length = marks[place + 1] - start
                copy(target, at, view, start, length)
                at += length
