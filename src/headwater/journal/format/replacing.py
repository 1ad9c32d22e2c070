"""Replaces a small file as a whole."""

from __future__ import annotations

import contextlib

from headwater.journal.disk.files import Files
from headwater.journal.format.names import TEMPORARY_SUFFIX


def replace_file(files: Files, name: str, content: bytes, size: int = 0) -> None:
    """Make ``content`` the content of a file, durably; its name is durable after `Files.sync_directory`. A crash
    leaves the old content or the new one. Raises `OSError`, in which case the old content stays. With ``size``, that
    many bytes are allocated."""
    temporary = name + TEMPORARY_SUFFIX
    try:
        files.create(temporary, size or len(content))
        files.write(temporary, 0, content)
        files.sync(temporary)
        files.rename(temporary, name)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(temporary)
        raise
