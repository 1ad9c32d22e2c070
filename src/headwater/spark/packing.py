"""Packs Headwater for executors into one file: an environment for ``--archives``, or a module for ``--py-files``.

    headwater-env.tar.gz              ./environment/ in the directory of each executor
      bin/headwater-python            starts the machine's own Python with site-packages on its path
      bin/python                      the same, under the name that Spark's documentation uses
      site-packages/headwater/…       compiled, as it is installed here
      site-packages/{redis,pyarrow,…}

Rule 1. Files are copied from this installation, without network or a second dependency resolution, so the same
        versions run here and in executors. Executors therefore need the same kind of machine and the same minor
        version of Python. They provide Python itself and Spark.
Rule 2. The archive can be unpacked anywhere: it contains no links and no absolute paths.
Rule 3. The same files make the same archive, byte for byte.
Rule 4. The archive appears complete or not at all.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final, NamedTuple

from headwater.errors import HeadwaterError

ENVIRONMENT: Final = "environment"
"""The directory in which executors find the environment. The URI of the archive has it as its fragment."""

LAUNCHER: Final = "headwater-python"
"""The command in the environment that starts Python."""

NEEDED: Final = ("redis", "hiredis", "msgspec", "google-crc32c", "pyarrow")
"""The distributions that readers and writers import in executors."""

_OWN: Final = ("headwater", "pyspark_headwater")
_LEFT_OUT: Final = re.compile(
    r"(^|/)(__pycache__|tests|include)/|\.(pyc|pyx|pxd|pxi|h|hpp|c|cpp|cc)$"
)
_COMPRESSION: Final = 6

_EARLIEST: Final = {(3, 11): 3}
"""The earliest patch release, by minor version: before 3.11.3 redis-py needs async-timeout, which may be missing."""

_SCRIPT: Final = """#!/bin/sh
# Made by `headwater spark pack`: runs Python {version} with the packages of this archive.
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd) || exit
python=${{HEADWATER_PYTHON:-python{version}}}
"$python" -c 'import sys; sys.exit(not ({earliest} <= sys.version_info[:3] < {beyond}))' || {{
  echo "headwater: this environment needs Python {version}{patch}, but \\"$python\\" is missing or another version." \\
    "Install it, or set spark.executorEnv.HEADWATER_PYTHON=/path/to/python{version}" >&2
  exit 127
}}
PYTHONPATH="$here/site-packages${{PYTHONPATH:+:$PYTHONPATH}}" exec "$python" "$@"
"""


class Packed(NamedTuple):
    """The file that `headwater.spark.pack_environment` or `headwater.spark.pack_module` wrote."""

    path: Path
    """The path of the file."""
    bytes: int
    """The size of the file in bytes."""
    files: int
    """The number of packed files."""


class _File(NamedTuple):
    name: str
    """The path within site-packages, with slashes."""
    source: Path


def pack_environment(
    output: str | os.PathLike[str] = "headwater-env.tar.gz", *, also: Sequence[str] = ()
) -> Packed:
    """Write an environment for executors to ``output``: Headwater as it is installed here, and its requirements.

        packed = pack_environment("headwater-env.tar.gz", also=["pandas"])
        spark = session(master="spark://host:7077", environment=packed.path)

    The file is a ``.tar.gz``. Executors need the same kind of machine and the same minor version of Python.
    ``also`` names further installed distributions that your own functions import; their requirements are
    packed too. Raises `HeadwaterError` if a distribution is not installed or the file cannot be written.
    See docs/guide/spark-cluster.md.
    """
    packages = sorted({*_own_files(compiled=True), *_distribution_files((*NEEDED, *also))})
    script = _script().encode()
    with (
        _written_whole(Path(output)) as (path, raw),
        gzip.GzipFile("", "wb", compresslevel=_COMPRESSION, fileobj=raw, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in (LAUNCHER, "python"):
            archive.addfile(_member(f"bin/{name}", len(script), 0o755), io.BytesIO(script))
        for file in packages:
            mode = 0o755 if os.access(file.source, os.X_OK) else 0o644
            with file.source.open("rb") as content:
                size = os.fstat(content.fileno()).st_size
                archive.addfile(_member(f"site-packages/{file.name}", size, mode), content)
    return Packed(path, path.stat().st_size, len(packages) + 2)


def pack_module(output: str | os.PathLike[str] = "headwater.zip") -> Packed:
    """Write only Headwater, as plain Python in a zip file, for ``--py-files``.

        packed = pack_module("headwater.zip")

    Compiled modules cannot be imported from a zip file, so executors use the slower, plain code. Executors
    need redis, hiredis, msgspec, google-crc32c and pyarrow installed. Raises `HeadwaterError` if the file
    cannot be written.
    """
    files = sorted(_own_files(compiled=False))
    with (
        _written_whole(Path(output)) as (path, raw),
        zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for file in files:
            # ZipInfo's default time is in 1980, so the same files make the same archive.
            entry = zipfile.ZipInfo(file.name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.source.read_bytes())
    return Packed(path, path.stat().st_size, len(files))


def _script() -> str:
    major, minor = sys.version_info[:2]
    patch = _EARLIEST.get((major, minor), 0)
    return _SCRIPT.format(
        version=f"{major}.{minor}",
        earliest=f"({major}, {minor}, {patch})",
        beyond=f"({major}, {minor + 1})",
        patch=f".{patch} or later" if patch else "",
    )


def _own_files(*, compiled: bool) -> Iterator[_File]:
    """Yield Headwater's files from the place of its import, which may be an editable installation."""
    wanted = {".py", ".lua", ".toml", ".typed", *({".so"} if compiled else set())}
    for name in _OWN:
        spec = find_spec(name)
        assert spec is not None, name
        assert spec.origin is not None, name
        source = Path(spec.origin)
        if source.stem != "__init__":
            yield _File(source.name, source)
            continue
        for path in source.parent.rglob("*"):
            if path.suffix in wanted and path.is_file():
                yield _File(path.relative_to(source.parent.parent).as_posix(), path)


def _distribution_files(names: Sequence[str]) -> Iterator[_File]:
    """Yield the files of distributions and of their installed requirements."""
    found: dict[str, metadata.Distribution] = {}
    asked = [(name, True) for name in names]
    while asked:
        name, demanded = asked.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if demanded:
                raise HeadwaterError(
                    f"{name} is not installed here, so it cannot be packed: pip install {name}"
                ) from None
            continue  # a requirement of other systems or other versions of Python
        found[key] = distribution
        asked += [(required, False) for required in _required(distribution)]
    for name, distribution in found.items():
        if distribution.files is None:
            raise HeadwaterError(
                f"{name} does not say which files it has, so it cannot be packed: install it with pip"
            )
        for file in distribution.files:
            place = file.as_posix()
            source = Path(str(distribution.locate_file(file)))
            # Scripts and data outside of site-packages refer to this machine's Python.
            if (
                not place.startswith(("..", "/"))
                and not _LEFT_OUT.search(place)
                and source.is_file()
            ):
                yield _File(place, source)


def _required(distribution: metadata.Distribution) -> Iterator[str]:
    """Yield the names of the requirements that do not depend on an extra."""
    for requirement in distribution.requires or ():
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        if name is not None and not re.search(r";.*\bextra\b", requirement):
            yield name[0]


def _member(name: str, size: int, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, mode
    return member


@contextmanager
def _written_whole(path: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """Open a temporary file, and rename it to ``path`` when the block has ended without an error."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as raw:
            yield path, raw
        partial.replace(path)
    except OSError as error:
        if error.filename not in (None, str(partial)):
            raise HeadwaterError(
                f"{error.filename} cannot be packed: {error.strerror or error}"
            ) from error
        raise HeadwaterError(
            f"{path} cannot be written: {error.strerror or error}; choose another --output"
        ) from error
    finally:
        partial.unlink(missing_ok=True)
