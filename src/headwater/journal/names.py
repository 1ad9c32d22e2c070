"""The names of journal files, and what the name and the header of a file say about it."""

from __future__ import annotations

import re
from typing import NamedTuple

from headwater.errors import JournalDamaged
from headwater.journal.files import Files
from headwater.journal.records import BOUND_VERSION, FORMAT_VERSION, file_key

TEMPORARY_SUFFIX = ".new"
"""The suffix of a file that is being created. It is renamed when its header is durable."""

_NAME = re.compile(r"journal-(\d{6,})")
_UNFINISHED = re.compile(rf"journal-\d{{6,}}{re.escape(TEMPORARY_SUFFIX)}")


def file_name(number: int) -> str:
    """Return the name of journal file ``number``.

    >>> file_name(7)
    'journal-000007'
    """
    return f"journal-{number:06d}"


def number_of(name: str) -> int:
    """Return the number of the journal file with this name."""
    return int(name.removeprefix("journal-"))


def is_unfinished(name: str) -> bool:
    """Whether this is the temporary name of a journal file whose creation was interrupted."""
    return _UNFINISHED.fullmatch(name) is not None


class JournalFile(NamedTuple):
    """One file of the journal, its allocated size in bytes, and its format version."""

    number: int
    size: int
    version: int = FORMAT_VERSION

    @property
    def name(self) -> str:
        return file_name(self.number)

    @property
    def key(self) -> int | None:
        """The key that binds records to their positions; None in a format that does not bind them."""
        return file_key(self.number) if self.version >= BOUND_VERSION else None


def names_in_order(files: Files) -> list[str]:
    """Return the names of all journal files, sorted by number.

    Raises `JournalDamaged` for a gap.
    """
    found = sorted(
        (int(match[1]), name) for name in files.names() if (match := _NAME.fullmatch(name))
    )
    for expected, (number, name) in enumerate(found, start=1):
        if number != expected or name != file_name(number):
            raise JournalDamaged(
                f"{files.path(file_name(expected))} is missing, although {files.path(name)} exists. "
                "Nothing was changed. Restore the missing file, or restore the data directory from a "
                "backup."
            )
    return [name for _number, name in found]
