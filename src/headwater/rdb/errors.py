"""Errors in a payload of DUMP."""

from __future__ import annotations


class BadPayload(ValueError):
    """The value of a payload is malformed. The text describes the fault; clients get Redis's text instead."""


class BadEnvelope(ValueError):
    """The version of a payload is unknown, or its checksum is wrong."""
