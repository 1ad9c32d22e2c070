"""cjson.encode and cjson.decode: JSON for scripts, in the format of the cjson library in Redis.

Source: Redis, deps/lua/src/lua_cjson.c and its manual: a table whose keys are 1 to n is an array, an
empty table is an object; ``/`` is escaped; numbers have up to 14 digits.
"""

from __future__ import annotations

import json
import math
import re
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

MAX_DEPTH = 1000
"""Maximum depth of nested values. Precedent: cjson, DEFAULT_ENCODE_MAX_DEPTH and DEFAULT_DECODE_MAX_DEPTH. If a
script sets a higher limit, Python's stack may overflow; the error is the same."""

_FRAMES = 5
"""Maximum number of Python's frames for each level of nested values."""
_DEEP = threading.Lock()
"""Lock that is held while the limit of Python's stack is raised."""


def deeply(function: Callable[[], Any]) -> Any:
    """Call a function that works on nested values. If Python's stack is not deep enough, call it again with a higher
    limit, for `MAX_DEPTH` levels. Raises `RecursionError` if that is not deep enough, either."""
    try:
        return function()
    except RecursionError:
        pass
    with _DEEP:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + _FRAMES * MAX_DEPTH)
        try:
            return function()
        finally:
            sys.setrecursionlimit(limit)


ITEM_BYTES = 16
"""Number of bytes counted for each item of a table in addition to its text, to account for its time."""
UNCHECKED_BYTES = 16 * 1024
"""Number of bytes between two checks of the length and the time."""

_LENIENT = re.compile(
    r'"(?:[^"\\]|\\.)*"'
    r"|[+-]?(?:0x[0-9a-f]+(?:\.[0-9a-f]*)?(?:p[+-]?\d+)?|\d+\.?\d*(?:e[+-]?\d+)?|nan|inf(?:inity)?)"
    r"|-\.\d+(?:e[+-]?\d+)?",
    re.IGNORECASE | re.DOTALL,
)
"""Pattern of strings, and of the numbers of strtod that JSON does not have."""

_NESTING = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]', re.DOTALL)


class EncodeOptions(NamedTuple):
    """Options of cjson.encode. An array longer than ``safe`` may be at most ``ratio`` times as long as the number
    of its items (0: any length); ``convert`` makes a longer one an object."""

    convert: bool
    ratio: float
    safe: float
    max_depth: float
    precision: float
    invalid_numbers: bool | bytes


class NotJSON(ValueError):
    """A value that JSON cannot represent, or invalid JSON."""


class CjsonEncoder:
    """Encodes Lua values. ``kind`` returns the Lua type of a value. The only userdata is null.

    ``check`` is called from time to time with the length of the text so far. It raises `NotJSON` if
    the text is too long or takes too long: a table that contains itself more than once grows
    practically without end.
    """

    def __init__(
        self, kind: Callable[[Any], str], check: Callable[[int], None], options: EncodeOptions
    ) -> None:
        self._kind = kind
        self._check = check
        self._options = options
        self._digits = f".{int(options.precision)}g"
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
            return self._number(value)
        kind = self._kind(value)
        if kind == "userdata":
            return "null"
        if kind != "table":
            raise NotJSON(f"Cannot serialise {kind}: type not supported")
        if depth >= self._options.max_depth:
            raise NotJSON(f"Cannot serialise, excessive nesting ({depth + 1})")
        self._longer(2)
        return self._table(value, depth + 1)

    def _number(self, value: float) -> str:
        if not math.isfinite(value) and self._options.invalid_numbers is not True:
            if self._options.invalid_numbers:
                return "null"
            raise NotJSON("Cannot serialise number: must not be NaN or Inf")
        return format(value, self._digits)

    def _longer(self, count: int) -> None:
        self._length += count
        if self._length > self._checked_to:
            self._check(self._length)
            self._checked_to = self._length + UNCHECKED_BYTES

    def _content(self, table: Any) -> dict[Any, Any]:
        content = {}
        for name, value in table.items():
            if isinstance(name, bool):  # equals 0 or 1 in Python
                raise NotJSON("Cannot serialise boolean: table key must be a number or string")
            content[name] = value
            self._longer(ITEM_BYTES)
        return content

    def _table(self, table: Any, depth: int) -> str:
        content, options = self._content(table), self._options
        if content and all(_is_index(name) for name in content):
            length = int(max(content))
            sparse = options.ratio and length > max(options.safe, len(content) * options.ratio)
            if sparse and not options.convert:
                raise NotJSON("Cannot serialise table: excessively sparse array")
            if not sparse:
                return "[" + ",".join(self._items(content, length, depth)) + "]"
        pairs = []
        for name, value in content.items():
            if isinstance(name, bytes):
                spelled = _quoted(name)
            elif isinstance(name, int | float):
                spelled = f'"{self._number(name)}"'
            else:
                kind = self._kind(name)
                raise NotJSON(f"Cannot serialise {kind}: table key must be a number or string")
            pairs.append(f"{spelled}:{self.encode(value, depth)}")
        return "{" + ",".join(pairs) + "}"

    def _items(self, content: dict[Any, Any], length: int, depth: int) -> list[str]:
        items = []
        for at in range(1, length + 1):
            if at not in content:  # a sparse array may be much longer than its table
                self._longer(5)
            items.append(self.encode(content.get(at), depth))
        return items


def decode(
    text: bytes, table: Callable[[], Any], null: Any, *, max_depth: int, invalid_numbers: bool
) -> Any:
    """Decode a text to a Lua value. ``invalid_numbers`` also accepts numbers that JSON does not have.
    Raises `NotJSON`, and `RecursionError` if the stack is not deep enough."""
    decoded = text.decode("utf-8", "surrogateescape")
    try:
        if max_depth < MAX_DEPTH:
            _check_depth(decoded, max_depth)
        try:
            value = json.loads(decoded, parse_constant=_no_constant, strict=False)
        except ValueError as error:
            if not invalid_numbers:
                raise
            try:
                value = json.loads(_LENIENT.sub(_strict, decoded), strict=False)
            except ValueError:
                raise error from None
        return _lua(value, table, null)
    except RecursionError:
        _check_depth(decoded, min(max_depth, MAX_DEPTH))
        raise
    except json.JSONDecodeError as error:
        found = "invalid token" if error.pos < len(error.doc) else "T_END"
        place = f"at character {error.pos + 1}"
        raise NotJSON(f"Expected value but found {found} {place}") from None


def _check_depth(text: str, max_depth: int) -> None:
    depth = 0
    for part in _NESTING.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(part[0], 0)
        if depth > max_depth:
            place = f"at character {part.start() + 1}"
            raise NotJSON(f"Found too many nested data structures ({depth}) {place}")


def _strict(part: re.Match[str]) -> str:
    """Return a number of strtod in the form of Python's JSON; strings unchanged."""
    text = part[0].lower()
    if text[0] == '"':
        return part[0]
    try:
        number = float.fromhex(text) if "0x" in text else float(text)
    except OverflowError:
        number = -math.inf if text[0] == "-" else math.inf
    return json.dumps(number)


def _lua(value: Any, table: Callable[[], Any], null: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass" if _paired(value) else "surrogateescape")
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < 2**1023 else math.inf
    if value is None:
        return null
    if isinstance(value, list):
        made = table()
        for index, item in enumerate(value, 1):
            made[index] = _lua(item, table, null)
        return made
    if isinstance(value, dict):
        made = table()
        for name, item in value.items():
            made[_lua(name, table, null)] = _lua(item, table, null)
        return made
    return value


def _is_index(name: Any) -> bool:
    return isinstance(name, int | float) and 1 <= name < 2**31 and name == int(name)


def _quoted(text: bytes) -> str:
    quoted = json.dumps(text.decode("utf-8", "surrogateescape"), ensure_ascii=False)
    return quoted.replace("/", "\\/").replace("\x7f", "\\u007f")


def _paired(text: str) -> bool:
    """Return whether a text has surrogates from JSON escapes, not from bytes that are invalid UTF-8."""
    return any(
        "\ud800" <= letter <= "\udfff" and not "\udc80" <= letter <= "\udcff" for letter in text
    )


def _no_constant(name: str) -> None:
    raise json.JSONDecodeError(name, name, 0)
