"""What a pipeline says when Spark fails: the root cause, in one sentence. The texts are Spark's, shortened."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from headwater.errors import DataLoss, HeadwaterError, PipelineError
from headwater.spark.pipeline import load, run
from headwater.spark.pipeline.errors import reason
from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORES = ("headwater",)

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

FULL = """\
An error occurred while calling o439.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/t/staging. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:808)
Caused by: org.apache.parquet.util.AutoCloseables$ParquetCloseResourceException: Unable to close resource
\tat org.apache.parquet.util.AutoCloseables.uncheckedClose(AutoCloseables.java:85)
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat org.apache.hadoop.fs.RawLocalFileSystem.write(RawLocalFileSystem.java:264)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t... 27 more
"""

CRASHED = """\
An error occurred while calling o117.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 2.0 (TID 4) (localhost executor driver): org.apache.spark.SparkException: Python worker \
exited unexpectedly (crashed).
\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:600)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:391)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.runJob(DAGScheduler.scala:1549)
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).
\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:600)
Caused by: java.io.EOFException
\t... 31 more
"""

LOST = """\
[STREAM_FAILED] Query sales [id = 1f, runId = 2e] terminated with exception: Job aborted due to stage failure: Task 1 in \
stage 7.0 failed 4 times, most recent failure: Lost task 1.3 in stage 7.0 (TID 31) (10.0.0.7 executor 2): \
ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: Command exited with code 137
"""

DENIED = """\
An error occurred while calling o53.parquet.
: org.apache.hadoop.security.AccessControlException: Permission denied: /t
\tat org.apache.hadoop.fs.RawLocalFileSystem.mkdirs(RawLocalFileSystem.java:1)
"""


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
        (
            FULL,
            PipelineError,
            "IOException: No space left on device (Task failed while writing rows to file:/t/staging)",
        ),
        (CRASHED, PipelineError, "Python worker exited unexpectedly (crashed)."),
        (
            LOST,
            PipelineError,
            (
                "ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: Command exited "
                "with code 137"
            ),
        ),
        (DENIED, PipelineError, "AccessControlException: Permission denied: /t"),
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


@pytest.mark.spark
@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("mode", ["append", "complete"])
def test_a_run_that_fails_in_the_jvm_names_the_root_cause(
    spark: SparkSession, shop: Shop, tmp_path: Path, mode: str
) -> None:
    # Given a table that reads a damaged file
    shop.add("s", [1])
    (tmp_path / "items.parquet").write_text("no")
    file = tmp_path / "p.toml"
    file.write_text(f"""
[source.raw]
url = "{shop.url}"
stream = "s"
schema = "n bigint"

[input.items]
path = "items.parquet"
schema = "n bigint, name string"

[table.sales]
mode = "append"
sql = "SELECT n FROM raw"
path = "sales"

[table.t]
mode = "{mode}"
sql = "SELECT n, name FROM {"raw" if mode == "append" else "sales"} JOIN items USING (n)"
path = "t"
""")

    # When it runs, then the error is one sentence
    with pytest.raises(PipelineError) as raised:
        run(load(file), once=True, report=lambda *_line: None)

    assert re.fullmatch(
        rf"{re.escape(str(file))}: table.t: RuntimeException: \S*items.parquet is not a Parquet file .*",
        str(raised.value),
    ), raised.value
