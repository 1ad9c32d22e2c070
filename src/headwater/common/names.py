"""Names of streams, groups and consumers as text, and the display of text from untrusted sources.

A name is bytes. A name that is not UTF-8 becomes a str as file names do in Python (PEP 383): each byte that cannot be
decoded becomes a surrogate, and becomes the same byte again when the name is sent.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
"""Control characters, line separators, marks that are invisible or change the direction of text, lone surrogates."""

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\a": "\\a", "\b": "\\b"}


def text_of(name: bytes) -> str:
    r"""Return a name as text.

    >>> text_of(b"orders"), text_of(b"caf\xe9")
    ('orders', 'caf\udce9')
    """
    return name.decode("utf-8", "surrogateescape")


def bytes_of(name: str) -> bytes:
    r"""Return the bytes of a name, as the server stores them.

    >>> bytes_of("caf\udce9")
    b'caf\xe9'
    """
    return name.encode("utf-8", "surrogateescape")


def printable(name: str) -> str:
    r"""Return a name for readers that accept only UTF-8. Other bytes are written in the form ``\xff``.

    >>> print(printable("caf\udce9"))
    caf\xe9
    """
    return bytes_of(name).decode("utf-8", "backslashreplace")


def escaped(text: str) -> str:
    r"""Return text on one line. Characters that could act on a terminal or end the line are escaped, as redis-cli does.

    >>> print(escaped("a\n2026-01-01 WARNING b\x1b[2J"), escaped("caf\udce9"))
    a\n2026-01-01 WARNING b\x1b[2J caf\xe9
    """
    return _UNSAFE.sub(lambda found: _SHORT.get(found[0]) or _bytewise(found[0]), text)


def _bytewise(character: str) -> str:
    data = character.encode(
        "utf-8", "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    )
    return "".join(f"\\x{byte:02x}" for byte in data)


def quoted(text: str) -> str:
    r"""Return text for a table or a line: unchanged, or in double quotes, as redis-cli does, if it could be mistaken
    for something else.

    >>> print(quoted("orders"), quoted("two\nlines"), quoted('"'), quoted("a  b"))
    orders "two\nlines" "\"" "a  b"
    """
    plain = not _UNSAFE.search(text) and text == text.strip() and "  " not in text
    if plain and text and text[0] != '"':
        return text
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped(text)}"'
