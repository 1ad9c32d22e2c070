"""What is wrong with a payload of DUMP."""

from __future__ import annotations


class BadPayload(ValueError):
    """The value is not what it should be; the text says how, for whoever debugs."""


class BadEnvelope(ValueError):
    """A payload's version is not known here, or its checksum is another."""
