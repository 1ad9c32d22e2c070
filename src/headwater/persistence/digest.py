"""The digest of the sources that a replay depends on.

A helper process loads its modules later than the server. If the package was upgraded in between, the helper
would replay the server's journal with other code, so it refuses the order.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent
_PARTS = ("common", "config", "engine", "journal", "native", "persistence")


@cache
def source_digest() -> str:
    """Return the SHA-256 of the sources of this package, as they were at the first call.

    Raises `OSError` if the package is not in a directory.
    """
    found = hashlib.sha256()
    paths = [
        *_PACKAGE.glob("*.py"),
        *(path for part in _PARTS for path in (_PACKAGE / part).rglob("*.py")),
    ]
    if not paths:
        raise NotADirectoryError(f"{_PACKAGE} has no sources")
    for path in sorted(paths):
        found.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0")
        found.update(path.read_bytes())
    return found.hexdigest()
