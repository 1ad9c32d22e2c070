"""Errors in a payload of DUMP."""

from __future__ import annotations


class BadPayload(ValueError):
    """The value of a payload is malformed. The text describes the fault; clients get Redis's text instead."""


class ValueTooLarge(BadPayload):
    """The value of a payload takes more than ``most`` bytes of memory. Clients get the text."""

    def __init__(self, most: int) -> None:
        super().__init__(
            f"the value takes more than {most} bytes, the most that RESTORE creates: move it in parts, by XRANGE and "
            "XADD, or move the whole store with headwater backup"
        )


class BadEnvelope(ValueError):
    """The version of a payload is unknown, or its checksum is wrong."""
