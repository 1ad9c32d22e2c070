"""LZF, as far as it is read: the compression of strings in payloads of real servers.

    000lllll                    l+1 bytes follow as they are
    lllooooo oooooooo           l+2 bytes from o+1 bytes back (l 1 to 6)
    111ooooo llllllll oooooooo  l+9 bytes from o+1 bytes back

Nothing is written compressed: every server reads plain strings.

Source: LibLZF, lzf_d.c; Redis keeps a copy.
"""

from __future__ import annotations

from headwater.rdb.payload import BadPayload

MOST_GROWTH = 88
"""Three bytes give at most 264."""


def decompress(data: bytes, size: int) -> bytes:
    """The ``size`` bytes that ``data`` stands for.

    >>> decompress(bytes.fromhex("01 61 61 c0 01"), 10)
    b'aaaaaaaaaa'

    Raises `BadPayload` when they are more or fewer, or refer to what is not there; no more than
    ``size`` bytes are ever made, and ``size`` is believed only within `MOST_GROWTH`.
    """
    if size > MOST_GROWTH * len(data):
        raise BadPayload(f"{len(data)} compressed bytes cannot be {size}")
    made = bytearray()
    at, end = 0, len(data)
    while at < end:
        control = data[at]
        at += 1
        if control < 32:
            run = data[at : at + control + 1]
            if len(run) <= control:
                raise BadPayload("a compressed string ends within a literal")
            made += run
            at += control + 1
        else:
            length = control >> 5
            needed = 2 if length == 7 else 1
            if at + needed > end:
                raise BadPayload("a compressed string ends within a reference")
            if length == 7:
                length += data[at]
                at += 1
            back = ((control & 31) << 8 | data[at]) + 1
            at += 1
            _repeat(made, back, length + 2)
        if len(made) > size:
            raise BadPayload(f"a compressed string is longer than its {size} bytes")
    if len(made) != size:
        raise BadPayload(f"a compressed string is {len(made)} bytes, not {size}")
    return bytes(made)


def _repeat(made: bytearray, back: int, length: int) -> None:
    """Append ``length`` bytes that begin ``back`` bytes before the end; they may overlap it."""
    start = len(made) - back
    if start < 0:
        raise BadPayload("a compressed string refers to what lies before it")
    run = made[start : start + length]
    made += run * (length // len(run)) + run[: length % len(run)]
