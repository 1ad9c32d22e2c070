"""Turns Spark's errors into one sentence that names the key at fault."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from headwater import errors
from headwater.errors import HeadwaterError, PipelineError

if TYPE_CHECKING:
    from headwater.spark.pipeline.declaration.model import Pipeline

T = TypeVar("T")

_TRACEBACK: Final = "Traceback (most recent call last):\n"
_MISMATCH: Final = "[PYTHON_VERSION_MISMATCH]"
_OWN: Final = re.compile(r"headwater\.errors\.(\w+): (.+)")


def explained(pipeline: Pipeline, key: str, do: Callable[[], T]) -> T:
    """Call ``do``; raise its error with the file and the key."""
    from pyspark.errors import PySparkException

    try:
        return do()
    except (PySparkException, HeadwaterError) as error:
        raise reason(pipeline, key, error) from None


def reason(pipeline: Pipeline, place: str, error: BaseException) -> HeadwaterError:
    """Return an error with one sentence and without secrets.

    If Spark has wrapped an error of Headwater in a traceback, this is that error. Otherwise the sentence is
    that of the Python error of an executor, or the first line of the message of Spark or the system.
    """
    from pyspark.errors import PySparkException

    if isinstance(error, HeadwaterError):
        return type(error)(pipeline.shown(f"{pipeline.file}: {place}: {error}"))
    text = str(error)
    own = _OWN.findall(text)
    if own:
        kind, sentence = own[-1]
        wrapped: type[HeadwaterError] = getattr(errors, kind, PipelineError)
        return wrapped(pipeline.shown(f"{pipeline.file}: {place}: {sentence}"))
    first = _raised(text) or next((line.strip() for line in text.splitlines() if line.strip()), "")
    if not isinstance(error, PySparkException):
        first = f"{type(error).__name__}: {first}"
    return PipelineError(pipeline.shown(f"{pipeline.file}: {place}: {first}"))


def _raised(text: str) -> str | None:
    """Return the first Python error in Spark's text for a failed task; None if there is none.

    Those after it were raised while it was handled.
    """
    _before, found, rest = text.partition(_TRACEBACK)
    if not found:
        return None
    line = next((line for line in rest.splitlines() if line and not line[0].isspace()), "")
    if ": " not in line:
        return None  # Spark has cut its text
    kind, _colon, sentence = line.partition(": ")
    said = f"{kind.rpartition('.')[2]}: {sentence.strip()}"
    if _MISMATCH in said:
        said = f"{sentence.strip()} Executors need the driver's version: see docs/guide/spark-cluster.md."
    return said
