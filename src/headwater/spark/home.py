"""A SPARK_HOME for local masters in which Python's part of Spark is not in a zip file.

Spark starts Python processes for each query: to find a source, to plan a batch, to read the batch. Spark puts its
own ``python/lib/pyspark.zip`` first on their path, and Python compiles every module that it imports from a zip
file. Compiling takes 0.5 s of a process's 0.75 s of processor time. The directory that `spark_home` makes consists
of links to pip's pyspark, but its ``python/lib/pyspark.zip`` is a directory with a link to the installed package.
The bytecode of that package is already stored, by pip or by the first import.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from headwater.spark.launchers import cache


def spark_home() -> Path | None:
    """Return the directory, made if necessary; None if it cannot be made: Spark then uses the zip file.

    Source: pyspark/find_spark_home.py, which trusts SPARK_HOME.
    """
    installed = _package("pyspark")
    if installed is None or not (installed / "python" / "lib" / "pyspark.zip").is_file():
        return None  # a Spark that was not installed by pip
    try:
        links = _links(installed)
        # Another version of pyspark has other links and another name, so a home in use is not replaced.
        digest = hashlib.sha256(repr(sorted(links.items())).encode()).hexdigest()
        home = cache() / f"spark-{digest[:16]}"
        if not _is_complete(home, links):
            _make(home, links)
        return home if _is_complete(home, links) else None
    except OSError:  # links or the cache's directory are not available
        return None


def _package(name: str) -> Path | None:
    spec = find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).resolve().parent


def _links(installed: Path) -> dict[str, Path]:
    """Return the links of a home, each with its target; the zip files become directories."""
    found = {path.name: path for path in installed.iterdir() if path.name != "python"}
    found |= {
        f"python/{path.name}": path
        for path in (installed / "python").iterdir()
        if path.name != "lib"
    }
    for path in (installed / "python" / "lib").iterdir():
        package = _package(path.name.partition("-")[0].removesuffix(".zip"))
        place = f"python/lib/{path.name}"
        found[place if package is None else f"{place}/{package.name}"] = package or path
    return found


def _is_complete(home: Path, links: dict[str, Path]) -> bool:
    # Links may have been removed since they were made.
    return home.is_dir() and all(
        (home / name).is_symlink() and (home / name).readlink() == target
        for name, target in links.items()
    )


def _make(home: Path, links: dict[str, Path]) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    # Made under another name and then renamed, because two sessions may start at the same time.
    partial = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
    try:
        for name, target in links.items():
            link = partial / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        shutil.rmtree(home, ignore_errors=True)
        with suppress(OSError):  # another session made it meanwhile
            partial.replace(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
