"""Scripts that start another program for Spark, made once and kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


def launcher(kind: str, place: str, script: str) -> Path:
    """A directory in which ``place`` is the executable ``script``, such as ``bin/java``.

    Its name is made of ``kind`` and of what the script says, so the same script is made once. Where
    the cache cannot be written, it is a new temporary directory.
    """
    name = f"{kind}-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"
    try:
        return _written(cache / name, place, script)
    except OSError:
        return _written(Path(tempfile.mkdtemp(prefix="headwater-")) / name, place, script)


def _written(directory: Path, place: str, script: str) -> Path:
    path = directory / place
    if path.is_file() and path.read_text() == script and os.access(path, os.X_OK):
        return directory
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and renamed: two sessions may start at once.
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(script)
    beside.chmod(0o755)
    beside.replace(path)
    return directory
