"""NaN and the infinities, which JSON does not have.

A JSON encoder writes these values as null, so a reader would treat them as missing. With the sink's option
``nonFinite=refuse``, a row with such a value raises an error. With ``text``, the sink writes words that
``float()`` and Spark read: ``NaN``, ``Infinity``, ``-Infinity``. The column ``_rescued`` has these words too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    import pyarrow as pa

NonFinite = Literal["refuse", "text"]

_WORDS: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}


def has_non_finite(column: pa.Array) -> bool:
    """Return whether a value of the column, or a nested value, may be NaN or infinite. The result also considers
    values that Arrow keeps in a null map or outside of a slice, so `is_finite` has to confirm it.

    >>> import pyarrow as pa
    >>> [has_non_finite(pa.array(values)) for values in ([1.5, None], [[2.0], [math.nan]])]
    [False, True]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_floating(kind):
        return pc.all(pc.is_finite(column), min_count=0).as_py() is False
    if pa.types.is_struct(kind):
        return any(map(has_non_finite, column.flatten()))
    if pa.types.is_map(kind):
        return has_non_finite(column.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return has_non_finite(column.flatten())
    return False


def is_finite(value: Any) -> bool:
    """Return whether neither ``value`` nor any value nested in it is NaN or infinite.

    >>> is_finite({"prices": [1.5, None]}), is_finite({"prices": [math.inf]})
    (True, False)
    """
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(is_finite, value.values()))
    return not isinstance(value, list) or all(map(is_finite, value))


def in_words(value: Any) -> Any:
    """Return ``value`` with NaN and the infinities replaced by words.

    >>> in_words({"price": math.nan, "limits": [-math.inf, 2.5]})
    {'price': 'NaN', 'limits': ['-Infinity', 2.5]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else _WORDS.get(value, "NaN")
    if isinstance(value, dict):
        return {name: in_words(one) for name, one in value.items()}
    return [in_words(one) for one in value] if isinstance(value, list) else value
