"""Turns Spark's errors into one sentence that names the key at fault."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from headwater import errors
from headwater.errors import HeadwaterError, PipelineError
from headwater.spark.core.causes import root_cause

if TYPE_CHECKING:
    from headwater.spark.pipeline.declaration.model import Pipeline

T = TypeVar("T")

_OWN: Final = re.compile(r"headwater\.errors\.(\w+): (.+)")


def explained(pipeline: Pipeline, key: str, do: Callable[[], T]) -> T:
    """Call ``do``; raise its error with the file and the key."""
    try:
        return do()
    except Exception as error:
        if not isinstance(error, (HeadwaterError, *_foreign())):
            raise
        raise reason(pipeline, key, error) from None


@contextmanager
def explaining(pipeline: Pipeline, doing: str) -> Iterator[None]:
    """Raise a Spark error inside the block, a step without a key, as one sentence with the file and ``doing``."""
    try:
        yield
    except _foreign() as error:
        raise reason(pipeline, doing, error) from None


def _foreign() -> tuple[type[Exception], ...]:
    """Return the errors of Spark, the system and libraries that write files. Others are mistakes in Headwater."""
    import pyarrow as pa
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    delta = sys.modules.get("deltalake.exceptions")
    found = (PySparkException, Py4JError, OSError, pa.ArrowException)
    return found if delta is None else (*found, delta.DeltaError)


def reason(pipeline: Pipeline, place: str, error: BaseException) -> HeadwaterError:
    """Return an error with one sentence and without secrets.

    If Spark has wrapped an error of Headwater in a traceback, this is that error. Otherwise the sentence is the root
    cause.
    """
    if isinstance(error, HeadwaterError):
        return type(error)(pipeline.shown(f"{pipeline.file}: {place}: {error}"))
    text = str(error)
    own = _OWN.findall(text)
    if own:
        kind, sentence = own[-1]
        wrapped: type[HeadwaterError] = getattr(errors, kind, PipelineError)
        return wrapped(pipeline.shown(f"{pipeline.file}: {place}: {sentence}"))
    return PipelineError(pipeline.shown(f"{pipeline.file}: {place}: {root_cause(error)}"))
