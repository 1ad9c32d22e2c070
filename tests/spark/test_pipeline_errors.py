"""What a pipeline says when a task of an executor fails in Python; the texts are Spark's, shortened."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from headwater.errors import DataLoss, HeadwaterError, PipelineError
from headwater.spark.pipeline import load
from headwater.spark.pipeline.errors import reason

FILE = """
[source.raw]
url = "redis://localhost"
stream = "s"
schema = "n bigint"

[table.copy]
mode = "append"
sql = "SELECT n FROM raw"
path = "copy"
"""

MISMATCH = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "pyspark.zip/pyspark/worker.py", line 4174, in invoke_udf
    check_python_version(init_info.python_version)
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different \
version: 3.10 than that in driver: 3.11, PySpark cannot run with different minor versions.
Please check environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are correctly set.
"""

TWO = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source initialize source: Traceback (most recent call last):
  File "source.py", line 6, in streamReader
    import missing
ModuleNotFoundError: No module named 'missing'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "runner.py", line 1, in main
UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value
"""

OWN = """\
[STREAM_FAILED] Query terminated with exception: Job aborted due to stage failure: Traceback (most recent call last):
  File "reading.py", line 6, in read
headwater.errors.DataLoss: stream 's' lacks 3 entries
"""

PLAIN = "\n[TABLE_OR_VIEW_NOT_FOUND] The table `raws` cannot be found.\n\nIt is at line 1.\n"


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            MISMATCH,
            PipelineError,
            (
                "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in "
                "driver: 3.11, PySpark cannot run with different minor versions. Executors need the driver's "
                "version: see docs/guide/spark-cluster.md."
            ),
        ),
        (TWO, PipelineError, "ModuleNotFoundError: No module named 'missing'"),
        (OWN, DataLoss, "stream 's' lacks 3 entries"),
        (PLAIN, PipelineError, "[TABLE_OR_VIEW_NOT_FOUND] The table `raws` cannot be found."),
    ],
)
def test_the_cause_is_one_sentence(
    text: str, kind: type[HeadwaterError], said: str, tmp_path: Path
) -> None:
    # Given a pipeline, a query of which fails with one of Spark's texts
    file = tmp_path / "orders.toml"
    file.write_text(FILE)

    error = reason(load(file), "table copy", PySparkException(text))

    # Then its error names the file, the table and what happened
    assert type(error) is kind
    assert str(error) == f"{file}: table copy: {said}"
