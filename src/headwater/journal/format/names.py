"""The names of data files, and the properties of a journal file that are in its name and header."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from headwater.journal.disk.files import Files
from headwater.journal.format.failures import MANIFEST_NAME, missing_file
from headwater.journal.format.records import BOUND_VERSION, FORMAT_VERSION, file_key

TEMPORARY_SUFFIX = ".new"
"""The suffix of a file that is being created. It is removed from the name when the content is durable."""

UNNEEDED_NAME = "unneeded"
"""The file that lists segments without references (`headwater.journal.images.retention`)."""

_NAME = re.compile(r"journal-(\d{6,})")
_IMAGE = re.compile(r"image-(\d{6,})")
_PAST = re.compile(r"manifest-(\d{6,})")
_UNFINISHED = re.compile(
    rf"(?:(?:journal|image|manifest)-\d{{6,}}|{MANIFEST_NAME}|{UNNEEDED_NAME}){re.escape(TEMPORARY_SUFFIX)}"
)


def file_name(number: int) -> str:
    """Return the name of journal file ``number``.

    >>> file_name(7)
    'journal-000007'
    """
    return f"journal-{number:06d}"


def image_name(number: int) -> str:
    """Return the name of image ``number``.

    >>> image_name(3)
    'image-000003'
    """
    return f"image-{number:06d}"


def past_name(number: int) -> str:
    """Return the name of the kept former MANIFEST that named image ``number``; 0 stands for the MANIFEST without
    an image (`headwater.journal.images.retention`).

    >>> past_name(3)
    'manifest-000003'
    """
    return f"manifest-{number:06d}"


def number_of(name: str) -> int:
    """Return the number of the journal file with this name."""
    return int(name.removeprefix("journal-"))


def is_unfinished(name: str) -> bool:
    """Return whether this is the temporary name of a data file whose creation was interrupted."""
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


def journal_numbers(files: Files) -> list[int]:
    """Return the numbers of all journal files, sorted."""
    return numbers_in(files, _NAME, file_name)


def past_numbers(files: Files) -> list[int]:
    """Return the numbers of all former MANIFESTs that are kept, sorted."""
    return sorted(numbers_in(files, _PAST, past_name))


def image_numbers(files: Files, *, unfinished: bool = False) -> list[int]:
    """Return the numbers of all images, sorted; with ``unfinished``, also of images that are being written."""
    found = numbers_in(files, _IMAGE, image_name)
    if unfinished:
        found += numbers_in(files, _IMAGE, image_name, suffix=TEMPORARY_SUFFIX)
    return sorted(found)


def numbers_in(
    files: Files, pattern: re.Pattern[str], name: Callable[[int], str], suffix: str = ""
) -> list[int]:
    """Return the numbers in the names of a directory that match ``pattern`` and have exactly the form of ``name``,
    sorted. Only names that end with ``suffix`` count, and they are compared without it."""
    stems = [one.removesuffix(suffix) for one in files.names() if one.endswith(suffix)]
    numbers = [int(match[1]) for stem in stems if (match := pattern.fullmatch(stem))]
    return sorted(number for number in numbers if name(number) in stems)


def names_in_order(files: Files, first: int = 1, last: int = 0) -> list[str]:
    """Return the names of all journal files from number ``first`` on, in order. ``last`` is the number of the last
    file that MANIFEST names.

    Raises `JournalDamaged` if there is a gap between the files, or if a file up to ``last`` is missing.
    """
    found = [number for number in journal_numbers(files) if number >= first]
    for expected, number in enumerate(found, start=first):
        if number != expected:
            reason = f"{files.path(file_name(number))} exists"
            raise missing_file(files, file_name(expected), reason)
    for number in range(first + len(found), last + 1):
        raise missing_file(files, file_name(number), f"{MANIFEST_NAME} names it")
    return [file_name(number) for number in found]
