"""Who answers: what HELLO and INFO say of this server.

Clients look for ``redis`` and a version whose commands we have; people look for our own name.
"""

from __future__ import annotations

import os

from headwater.version import __version__

SERVER_NAME = b"headwater"
COMPATIBLE_VERSION = b"8.8.0"
"""The Redis whose streams these are."""

RUN_ID = os.urandom(20).hex()
"""Tells one run of the process from another (INFO run_id)."""


def version() -> bytes:
    """Headwater's own version."""
    return __version__.encode()
