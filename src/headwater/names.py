"""Names of streams, groups and consumers as text.

A name is bytes. One that is not UTF-8 becomes a str as names of files do in Python (PEP 383): each byte that cannot be
decoded is a surrogate, and is the same byte again when the name is sent.
"""

from __future__ import annotations


def text_of(name: bytes) -> str:
    r"""Return a name as text.

    >>> text_of(b"orders"), text_of(b"caf\xe9")
    ('orders', 'caf\udce9')
    """
    return name.decode("utf-8", "surrogateescape")


def bytes_of(name: str) -> bytes:
    r"""Return a name as the server has it.

    >>> bytes_of("caf\udce9")
    b'caf\xe9'
    """
    return name.encode("utf-8", "surrogateescape")


def printable(name: str) -> str:
    r"""Return a name for those who take only UTF-8: each byte that is not is written as ``\xff``.

    >>> print(printable("caf\udce9"))
    caf\xe9
    """
    return bytes_of(name).decode("utf-8", "backslashreplace")
