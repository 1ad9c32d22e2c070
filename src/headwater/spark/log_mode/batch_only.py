"""The options that a streaming read refuses."""

from __future__ import annotations

from typing import Final

from headwater.errors import DeclarationError
from headwater.spark.core.options import SourceOptions

_BATCH_ONLY: Final = {
    "endingId or endingTimestamp": "a streaming query has no end; remove it, or use read",
    "inferSchema": "a query's columns must not change when it is restarted. Infer them once, with a "
    "batch read, and pass the result to readStream with .schema(…)",
    "pushdown": "Spark does not push filters into a streaming read; remove it",
}


def refuse_batch_options(options: SourceOptions) -> None:
    """Raise `DeclarationError` for an option that works only in a batch read."""
    asked = {
        "endingId or endingTimestamp": options.ending != "latest",
        "inferSchema": options.infer_schema,
        "pushdown": options.pushdown,
    }
    for name, given in asked.items():
        if given:
            raise DeclarationError(f"{name} is for batch reads: {_BATCH_ONLY[name]}")
