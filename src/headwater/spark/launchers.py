"""Scripts that start another program for Spark, made once and stored in the user's cache."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


def launcher(kind: str, place: str, script: str) -> Path:
    """Return a directory in which ``place``, such as ``bin/java``, is the executable ``script``.

    The directory's name contains ``kind`` and a hash of the script, so the same script is made once. If
    the cache is not writable, the directory is a new temporary one.
    """
    name = f"{kind}-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    try:
        return _written(cache() / name, place, script)
    except OSError:
        return _written(Path(tempfile.mkdtemp(prefix="headwater-")) / name, place, script)


def cache() -> Path:
    """Return the directory for files that are made once and can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"


def _written(directory: Path, place: str, script: str) -> Path:
    path = directory / place
    if path.is_file() and path.read_text() == script and os.access(path, os.X_OK):
        return directory
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written under another name and then renamed, because two sessions may start at the same time.
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(script)
    partial.chmod(0o755)
    partial.replace(path)
    return directory
