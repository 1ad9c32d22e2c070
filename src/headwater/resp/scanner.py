"""Finds requests in a client's input: as offsets into one buffer, without an object for each argument.

Rule 1. `Scanner.feed` appends input and `Scanner.next` finds requests. `next` resumes an incomplete request where
        it stopped, so a request of n bytes costs O(n), regardless of the number of pieces.
Rule 2. The bytes of returned requests are dropped by a later `feed` and never before: offsets are valid
        from `next` until the `feed` after it. The buffer may be longer than its content.
Rule 3. A length is checked when its header is read, before memory is allocated for it.
Rule 4. The same bytes result in the same requests and the same error, regardless of how they were split.
Rule 5. After an error no further request is found. The connection is closed with the error's text.

    *2\\r\\n  $4\\r\\nXLEN\\r\\n  $6\\r\\norders\\r\\n        starts = [8, 18]  ends = [12, 24]
              │   │    └ ends[0]
              │   └ starts[0]
              └ position, between arguments

Lengths and errors are those of Redis (networking.c, processMultibulkBuffer). Redis reads a header up to its
CR and does not check that LF follows, nor that CR LF follows a value. Headwater does the same, but marks a
request with other bytes in those places as not canonical: `Arguments.find_wire` encodes it again before it
is stored.
"""

from __future__ import annotations

from array import array

from headwater.common.limits import (
    MAX_ARGUMENTS,
    MAX_ARGUMENTS_BEFORE_AUTH,
    MAX_BULK_BYTES,
    MAX_BULK_BYTES_BEFORE_AUTH,
    MAX_INLINE_BYTES,
    MAX_INLINE_BYTES_BEFORE_AUTH,
)
from headwater.errors import ProtocolError
from headwater.resp.arguments import Arguments
from headwater.resp.inline import split

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import put_bytes, put_part, resize, scan_bulks, set_word, word_at

_CR = 0x0D
_LF = 0x0A
_STAR = 0x2A
_DOLLAR = 0x24
_ZERO = 0x30
_TEN = 10

_HTTP = (b"POST", b"HOST:")

_KEPT_BYTES = 64 * 1024
"""Size above which an empty buffer is freed by the next `feed`. An empty buffer of more than `_RESTING_BYTES` is
freed when its client is idle (`Scanner.rest`)."""
_RESTING_BYTES = 1024


_NO_OFFSETS: array[int] = array("Q")

_OFFSETS_BYTES = 16
"""Bytes per argument for its two offsets."""


class Scanner:
    """The input of one client.

    >>> scanner, arguments = Scanner(), Arguments()
    >>> scanner.feed(b"*1\\r\\n$4\\r\\nPING\\r\\n*2\\r\\n$4\\r\\nXLEN\\r\\n$1")
    >>> scanner.next(arguments), arguments.values()
    (True, [b'PING'])
    >>> scanner.next(arguments)
    False
    >>> scanner.feed(b"\\r\\ns\\r\\n")
    >>> scanner.next(arguments), arguments.values()
    (True, [b'XLEN', b's'])
    """

    def __init__(self, *, max_bulk_bytes: int = MAX_BULK_BYTES, authenticated: bool = True) -> None:
        self.buffer = bytearray()
        self.authenticated = authenticated
        """Until this is True, a request may have at most 10 arguments, each of at most 16 KiB (CVE-2021-32675)."""
        self.max_bulk_bytes = max_bulk_bytes
        """Maximum length of an argument (redis.conf proto-max-bulk-len)."""
        self._size = 0  # number of bytes of input in the buffer
        self._begin = 0  # start of the first request that was not returned
        self._position = 0  # start of the next header of that request
        self._searched = 0  # from _position up to here, no end of line was found
        self._value = 0  # start of the value after the header that _bulk_length read last
        self._count = 0  # number of arguments that the request announced; 0 between requests
        self._index = 0  # number of the argument whose header is at _position
        self._canonical = True
        # Offsets of the arguments of an incomplete request.
        self._starts = self._ends = _NO_OFFSETS
        self._error: str | None = None

    def unread(self) -> int:
        """Return the number of bytes that were fed and not yet returned as part of a request."""
        return self._size - self._begin

    def buffered(self) -> int:
        """Return the number of bytes in the buffer: `unread`, and returned requests that are not yet dropped."""
        return self._size

    def memory_bytes(self) -> int:
        """Return the memory of the buffer, without spare capacity that was never written to, and of the offsets
        of an incomplete request."""
        return len(self.buffer) + _OFFSETS_BYTES * len(self._starts)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Append input. Invalidates offsets that were returned before."""
        size = len(data)
        at = self._make_room(size)
        if type(data) is bytes:
            put_bytes(self.buffer, at, data)
        else:
            self.buffer[at : at + size] = data

    def feed_part(self, data: bytearray, size: int) -> None:
        """Append the first ``size`` bytes of ``data``, which a socket has just received."""
        at = self._make_room(size)
        put_part(self.buffer, at, data, 0, size)

    def adopt(self, data: bytearray) -> None:
        """Replace the buffer with ``data``, which belongs to this scanner from now on."""
        self._empty()
        self.buffer = data
        self._size = len(data)

    def rest(self) -> None:
        """Free the buffer if it is empty. Called when the client has been idle for a while."""
        if self._begin == self._size and len(self.buffer) > _RESTING_BYTES:
            self._empty()
            self.buffer = bytearray()

    def _make_room(self, size: int) -> int:
        """Drop returned requests if that is cheap, and make space for ``size`` more bytes. Return its offset."""
        if self._begin == self._size:
            self._empty()
            if len(self.buffer) > _KEPT_BYTES:
                self.buffer = bytearray()
        elif self._begin * 2 > self._size:
            # The rest is moved only if it is smaller than the part before it: at most one byte is copied
            # for each byte that is dropped.
            self._drop(self._begin)
        at = self._size
        if at + size > len(self.buffer):
            resize(self.buffer, at + size)
        self._size = at + size
        return at

    def _empty(self) -> None:
        self._size = self._begin = self._position = self._searched = 0

    def _drop(self, dropped: int) -> None:
        """Drop the first ``dropped`` bytes and move the rest of the input to the front."""
        put_part(self.buffer, 0, self.buffer, dropped, self._size)
        self._size -= dropped
        self._begin = 0
        self._position -= dropped
        self._searched = max(0, self._searched - dropped)
        starts, ends = self._starts, self._ends
        for index in range(self._index):
            set_word(starts, index, word_at(starts, index) - dropped)
            set_word(ends, index, word_at(ends, index) - dropped)

    def next(self, arguments: Arguments) -> bool:
        """Put the next complete request into ``arguments``. Return False if more bytes are needed.

        Raises `ProtocolError` with Redis's text, here and at every later call.
        """
        if self._error is not None:
            raise ProtocolError(self._error)
        while self._count == 0:
            position = self._position
            if position >= self._size:
                return False
            if self.buffer[position] != _STAR:
                if not self._inline(arguments):
                    return False
                if arguments.count:
                    return True
            elif not self._begin_request():
                return False
        if self._index:
            arguments.starts, arguments.ends = self._starts, self._ends
        if not self._bulks(arguments):
            # Keep the offsets that were found: the caller may pass other arguments next time.
            self._starts, self._ends = arguments.starts, arguments.ends
            fresh = Arguments()
            arguments.starts, arguments.ends = fresh.starts, fresh.ends
            return False
        self._starts = self._ends = _NO_OFFSETS
        arguments.buffer = self.buffer
        arguments.count = self._count
        arguments.canonical = self._canonical
        self._begin = self._position
        self._count = self._index = 0
        return True

    def _refusal(self, text: str) -> ProtocolError:
        """Return the error that this call of `next` and all later calls raise."""
        self._error = text
        self._starts = self._ends = _NO_OFFSETS
        self._index = 0
        return ProtocolError(text)

    def _bulks(self, arguments: Arguments) -> bool:
        """Scan arguments until the request is complete (True) or the input ends (False)."""
        buffer, starts, ends = self.buffer, arguments.starts, arguments.ends
        size = self._size
        position, index, count = self._position, self._index, self._count
        room = len(starts)
        canonical = self._canonical
        while index < count:
            # Reads most arguments in one call. _bulk_length handles all others and errors.
            found = scan_bulks(buffer, position, size, starts, ends, index, min(count, room))
            if found > index:
                position = word_at(ends, found - 1) + 2
                index = found
                continue
            self._position = position
            length = self._bulk_length()
            if length < 0:
                break
            start = self._value
            end = start + length
            if end + 2 > size:
                break
            if buffer[start - 1] != _LF or buffer[end] != _CR or buffer[end + 1] != _LF:
                canonical = False
            if index == room:
                more = array("Q", bytes(8 * room))
                starts, ends = starts + more, ends + more
                arguments.starts, arguments.ends = starts, ends
                room *= 2
            set_word(starts, index, start)
            set_word(ends, index, end)
            position = end + 2
            index += 1
        self._position = position
        self._index = index
        self._canonical = canonical
        return index == count

    def _begin_request(self) -> bool:
        """Read ``*count``. Return False if the line is incomplete. A count below 1 is skipped."""
        buffer, position = self.buffer, self._position
        if position + 5 <= self._size:
            # Most counts have one or two digits, which are read here at a third of the cost.
            stop = position + 2
            first, second = buffer[position + 1] - _ZERO, buffer[stop] - _ZERO
            if 0 <= second <= 9 and self.authenticated:
                stop += 1
                second += first * _TEN
            else:
                second = first
            if 0 < first <= 9 and buffer[stop] == _CR:
                self._canonical = buffer[stop + 1] == _LF
                self._position = self._searched = stop + 2
                self._count = second
                return True
        line_end = self._line_end(_CR, "Protocol error: too big mbulk count string")
        if line_end < 0 or line_end + 2 > self._size:
            return False
        count = _strict_length(buffer[position + 1 : line_end])
        if count is None or count > MAX_ARGUMENTS:
            raise self._refusal("Protocol error: invalid multibulk length")
        if count > MAX_ARGUMENTS_BEFORE_AUTH and not self.authenticated:
            raise self._refusal("Protocol error: unauthenticated multibulk length")
        self._canonical = buffer[line_end + 1] == _LF
        self._position = self._searched = line_end + 2
        if count > 0:
            self._count = count
        else:
            self._begin = self._position
        return True

    def _bulk_length(self) -> int:
        """Read ``$length`` at ``_position``. Return the length and set ``_value`` to the start of the value, or
        return -1 if the line is incomplete."""
        line_end = self._line_end(_CR, "Protocol error: too big bulk count string")
        if line_end < 0 or line_end + 2 > self._size:
            return -1
        if self.buffer[self._position] != _DOLLAR:
            got = self.buffer[self._position : self._position + 1]
            text = got.decode("utf-8", "surrogateescape")
            raise self._refusal(f"Protocol error: expected '$', got '{text}'")
        length = _strict_length(self.buffer[self._position + 1 : line_end])
        if length is None or length < 0 or length > self.max_bulk_bytes:
            raise self._refusal("Protocol error: invalid bulk length")
        if length > MAX_BULK_BYTES_BEFORE_AUTH and not self.authenticated:
            raise self._refusal("Protocol error: unauthenticated bulk length")
        self._value = line_end + 2
        return length

    def _line_end(self, mark: int, too_big: str) -> int:
        """Return the offset of the ``mark`` that ends the line at ``_position``; -1 if it has not arrived yet.

        A line longer than `MAX_INLINE_BYTES` is an error even if its end has not arrived, so that the result
        does not depend on how the input was split. Before authentication the limit is lower.
        """
        position = self._position
        found = self.buffer.find(mark, max(position, self._searched), self._size)
        length = (found if found >= 0 else self._size) - position
        longest = MAX_INLINE_BYTES if self.authenticated else MAX_INLINE_BYTES_BEFORE_AUTH
        if length > longest:
            raise self._refusal(too_big)
        # The mark is found again while the byte after it has not arrived.
        self._searched = found if found >= 0 else self._size
        return found

    def _inline(self, arguments: Arguments) -> bool:
        """Parse one line into a new buffer of ``arguments``. Return False if the line is incomplete.

        A line without words leaves ``arguments.count`` 0.
        """
        line_end = self._line_end(_LF, "Protocol error: too big inline request")
        if line_end < 0:
            return False
        try:
            words = split(bytes(self.buffer[self._position : line_end]))
        except ProtocolError as error:
            raise self._refusal(str(error)) from None
        if words and words[0].upper() in _HTTP:
            # A web page can make a browser send such a line to a local port, and commands after it.
            raise self._refusal("Protocol error: this is not a web server (HTTP request refused)")
        if len(words) > MAX_ARGUMENTS_BEFORE_AUTH and not self.authenticated:
            raise self._refusal("Protocol error: unauthenticated multibulk length")
        self._begin = self._position = self._searched = line_end + 1
        arguments.count = 0
        if words:
            arguments.encode(words)
        return True


def _strict_length(text: bytearray) -> int | None:
    """Parse a decimal number as Redis's string2ll does, without leading zeros or plus signs; None if invalid."""
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit() or len(digits) > 19 or (digits[0] == _ZERO and len(text) > 1):
        return None
    return int(text)
