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
    """Return the result of ``do``; raise its error with the pipeline's file and ``key``."""
    try:
        return do()
    except Exception as error:
        if not isinstance(error, (HeadwaterError, *_foreign())):
            raise
        raise reason(pipeline, key, error) from None


@contextmanager
def explaining(pipeline: Pipeline, doing: str) -> Iterator[None]:
    """Raise a foreign error of the block as one sentence with the file and ``doing``, which names a step."""
    try:
        yield
    except _foreign() as error:
        raise reason(pipeline, doing, error) from None


def _foreign() -> tuple[type[Exception], ...]:
    """Return the error types of Spark, the system and file libraries. Other errors are bugs in Headwater."""
    import pyarrow as pa
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    delta = sys.modules.get("deltalake.exceptions")
    found = (PySparkException, Py4JError, OSError, pa.ArrowException)
    return found if delta is None else (*found, delta.DeltaError)


def reason(pipeline: Pipeline, place: str, error: BaseException) -> HeadwaterError:
    """Return an error with one sentence and without secrets.

    If Spark's error contains the traceback of a Headwater error, that error is returned. Otherwise the sentence
    is the root cause.
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
