"""cjson.encode and cjson.decode: JSON for scripts, in the format of the cjson library in Redis.

Source: Redis, deps/lua/src/lua_cjson.c and its manual: a table whose keys are 1 to n is an array, an
empty table is an object; ``/`` is escaped; numbers have up to 14 digits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 1000
"""Precedent: cjson, DEFAULT_ENCODE_MAX_DEPTH and DEFAULT_DECODE_MAX_DEPTH. Python's stack may overflow
earlier; the error is the same."""

ITEM_BYTES = 16
"""Bytes that an item of a table counts for the time that it takes, in addition to its own."""
UNCHECKED_BYTES = 16 * 1024
"""Bytes between two checks of the length and the time."""

MAX_GAPS = 2
"""An array longer than `MIN_SPARSE` may be at most this many times longer than the number of its
items."""
MIN_SPARSE = 10


class NotJSON(ValueError):
    """A value that JSON cannot represent, or invalid JSON."""


class CjsonEncoder:
    """Encodes Lua values. ``kind`` returns the Lua type of a value. The only userdata is null.

    ``check`` is called from time to time with the length of the text so far. It raises `NotJSON` if
    the text is too long or takes too long: a table that contains itself more than once grows
    practically without end.
    """

    def __init__(self, kind: Callable[[Any], str], check: Callable[[int], None]) -> None:
        self._kind = kind
        self._check = check
        self._checked_to = 0
        self._length = 0

    def encode(self, value: Any, depth: int = 0) -> str:
        """Encode a value. Raises `NotJSON`."""
        if value is None:
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, bytes):
            self._longer(len(value))
            return _quoted(value)
        if isinstance(value, int | float):
            if math.isnan(value) or math.isinf(value):
                raise NotJSON("Cannot serialise number: must not be NaN or Inf")
            return f"{value:.14g}"
        kind = self._kind(value)
        if kind == "userdata":
            return "null"
        if kind != "table":
            raise NotJSON(f"Cannot serialise {kind}: type not supported")
        if depth >= MAX_DEPTH:
            raise NotJSON(f"Cannot serialise, excessive depth ({depth + 1})")
        self._longer(2)
        return self._table(value, depth + 1)

    def _longer(self, count: int) -> None:
        self._length += count
        if self._length > self._checked_to:
            self._check(self._length)
            self._checked_to = self._length + UNCHECKED_BYTES

    def _content(self, table: Any) -> dict[Any, Any]:
        content = {}
        for name, value in table.items():
            content[name] = value
            self._longer(ITEM_BYTES)
        return content

    def _table(self, table: Any, depth: int) -> str:
        content = self._content(table)
        if content and all(_is_index(name) for name in content):
            length = int(max(content))
            if length > MIN_SPARSE and length > len(content) * MAX_GAPS:
                raise NotJSON("Cannot serialise table: excessively sparse array")
            items = (self.encode(content.get(at), depth) for at in range(1, length + 1))
            return "[" + ",".join(items) + "]"
        pairs = []
        for name, value in content.items():
            if isinstance(name, bytes):
                spelled = _quoted(name)
            elif isinstance(name, int | float) and not isinstance(name, bool):
                spelled = f'"{name:.14g}"'
            else:
                raise NotJSON("Cannot serialise table: table key must be a number or string")
            pairs.append(f"{spelled}:{self.encode(value, depth)}")
        return "{" + ",".join(pairs) + "}"


def decode(text: bytes, table: Callable[[], Any], null: Any) -> Any:
    """Decode a text to a Lua value. Raises `NotJSON`."""
    try:
        value = json.loads(text.decode("utf-8", "surrogateescape"), parse_constant=_no_constant)
        return _lua(value, table, null, 0)
    except RecursionError:
        raise NotJSON(f"Found too many nested data structures ({MAX_DEPTH + 1})") from None
    except ValueError as error:
        raise NotJSON(f"Expected a value but found invalid JSON: {error}") from None


def _lua(value: Any, table: Callable[[], Any], null: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise NotJSON(f"Found too many nested data structures ({depth})")
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass" if _paired(value) else "surrogateescape")
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < 2**1023 else math.inf
    if value is None:
        return null
    if isinstance(value, list):
        made = table()
        for index, item in enumerate(value, 1):
            made[index] = _lua(item, table, null, depth + 1)
        return made
    if isinstance(value, dict):
        made = table()
        for name, item in value.items():
            made[_lua(name, table, null, depth + 1)] = _lua(item, table, null, depth + 1)
        return made
    return value


def _is_index(name: Any) -> bool:
    number = isinstance(name, int | float) and not isinstance(name, bool)
    return number and name >= 1 and name == int(name)


def _quoted(text: bytes) -> str:
    quoted = json.dumps(text.decode("utf-8", "surrogateescape"), ensure_ascii=False)
    return quoted.replace("/", "\\/").replace("\x7f", "\\u007f")


def _paired(text: str) -> bool:
    """Return whether a text has surrogates from JSON escapes, not from bytes that are invalid UTF-8."""
    return any(
        "\ud800" <= letter <= "\udfff" and not "\udc80" <= letter <= "\udcff" for letter in text
    )


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid in JSON")
