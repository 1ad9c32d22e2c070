"""The identity of the server in HELLO and INFO.

Clients look for ``redis`` and a version whose commands are supported; people look for Headwater's name.
"""

from __future__ import annotations

import os

from headwater.version import __version__

SERVER_NAME = b"headwater"
COMPATIBLE_VERSION = b"8.8.0"
"""The version of Redis whose streams Headwater implements."""

RUN_ID = os.urandom(20).hex()
"""Random identifier of this run of the process (INFO run_id)."""


def version() -> bytes:
    """Return Headwater's version."""
    return __version__.encode()
