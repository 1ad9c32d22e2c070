"""Explains in one sentence why Spark failed. Spark's own text has a line for each layer, the cause often last."""

from __future__ import annotations

import re
from typing import Final

_TRACEBACK: Final = "Traceback (most recent call last):\n"
_MISMATCH: Final = "[PYTHON_VERSION_MISMATCH]"
_CALLING: Final = re.compile(r"An error occurred while calling [^\n]*\n: ")
_CAUSED: Final = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_TASK: Final = re.compile(
    r"Job aborted due to stage failure: .*?: Lost task [^)]*\) \([^)]*\): (.*)"
)
_CONDITION: Final = re.compile(r"\[[A-Z_.]+\] (.*?)\.?\s*(?:SQLSTATE: \w+)?")
_STREAM: Final = re.compile(r"(?:\[STREAM_FAILED\] )?Query .*?terminated with exception: ")
_JAVA: Final = re.compile(r"(?:[a-z]\w*\.)+([A-Z][\w$]*)")


def root_cause(error: BaseException | None) -> str:
    """Return one sentence: the cause of a Spark error, or the type and first line of another error.

    A Java error is followed by Spark's operation in parentheses, if the text names it.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    if not isinstance(error, (PySparkException, Py4JError)):
        return f"{type(error).__name__}: {_first_line(str(error))}"
    # The text of a PySpark error omits the JVM's causes.
    lines = [f"{error}\n{getattr(error, '_stackTrace', None) or ''}"]
    while (error := getattr(error, "_cause", None)) is not None:
        lines.append(
            f"Caused by: {_CALLING.sub('', str(error))}\n{getattr(error, '_stackTrace', None) or ''}"
        )
    return cause_in("\n".join(lines))


def cause_in(text: str) -> str:
    """Return the cause that is named in Spark's text about an error.

    The cause is the first Python error in the text, because later errors were raised while it was handled.
    Without a Python error, the cause is the JVM's last one that has a message.

    >>> cause_in('''An error occurred while calling o44.parquet.
    ... : org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/t. SQLSTATE: 58030
    ...     at org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError
    ... Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
    ... Caused by: java.io.IOException: No space left on device''')
    'IOException: No space left on device (Task failed while writing rows to file:/t)'
    """
    raised = _raised(text)
    if raised is not None:
        return raised
    first = _first_line(_STREAM.sub("", _CALLING.sub("", text)))
    if (task := _TASK.fullmatch(first)) is not None:
        first = task[1]
    causes = [line for line in _CAUSED.findall(text) if _JAVA.fullmatch(line.strip()) is None]
    if not causes or causes[-1].strip() == first:
        return _short(first)
    root, doing = _short(causes[-1].strip()), _CONDITION.fullmatch(_without_class(first))
    return f"{root} ({doing[1]})" if doing is not None and doing[1] not in root else root


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _short(said: str) -> str:
    """Return a Java error without the package of its class, and a Spark error without its class."""
    while (found := re.fullmatch(rf"{_JAVA.pattern}: (.+)", said)) is not None:
        kind, rest = found[1], found[2]
        if re.match(rf"{_JAVA.pattern}: ", rest) is None and not kind.startswith("Spark"):
            return f"{kind.rpartition('$')[2]}: {rest}"
        said = rest
    return said


def _without_class(said: str) -> str:
    return re.sub(rf"^{_JAVA.pattern}: ", "", said)


def _raised(text: str) -> str | None:
    """Return the first Python error in Spark's text about a failed task; None if the text has none."""
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
