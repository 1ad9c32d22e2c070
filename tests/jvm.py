"""The JVMs that tests start take a quarter of the processor time that Spark's own take.

- The JVM's optimising compiler is off: with tables of a few rows it would take half of the time.
- Classes come from an archive (the JVM's class data sharing, JEP 350). To unpack and verify those of a first query
  would take half of the rest. ``python -m tests.jvm`` writes the archive. A JVM of another version or with another
  class path does not use it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

CLASSES = Path(__file__).parents[1] / "build" / "spark-classes.jsa"

_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Without it the JVM says on standard output which classes it cannot share."""

_PROGRAM = """
import headwater, headwater.spark as spark

url = "headwater://memory/classes"
store = headwater.connect(url)
for number in range(5):
    store.xadd("s", {"number": number, "item": "tea"})
session = spark.session(master="local[2]", config={
    "spark.ui.enabled": "false",
    "spark.sql.catalogImplementation": "hive",
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.port": "0",
})
rows = spark.read(session, "s", url=url, schema="number int, item string")
rows.groupBy("item").sum("number").collect()
rows.write.saveAsTable("items")
session.sql("SELECT max(number) FROM items JOIN (SELECT 'tea' AS item) USING (item)").collect()
spark.write(rows, "t", url=url)
source = spark.read_stream(session, "s", url=url, schema="number int")
for target in (
    source.writeStream.format("parquet").option("path", "copy").option("checkpointLocation", "c"),
    source.writeStream.foreachBatch(lambda frame, _: frame.write.format("noop").mode("append").save()),
):
    target.trigger(availableNow=True).start().awaitTermination()
spark.write_stream(source, "u", url=url, checkpoint="d", available_now=True).awaitTermination()
gateway = session.sparkContext._gateway
session.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def submit_options() -> str:
    """Return the value of SPARK_SUBMIT_OPTS with which Spark's programs start quick JVMs."""
    return (
        f"{QUICK_JVM} -XX:SharedArchiveFile={CLASSES} {_SILENT}" if CLASSES.exists() else QUICK_JVM
    )


def write_classes() -> None:
    """Run a program with a bit of everything, and write the archive of the classes that it has loaded."""
    CLASSES.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CLASSES.parent) as directory:
        made = Path(directory, "classes.jsa")
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            cwd=directory,
            env=os.environ
            | {"SPARK_SUBMIT_OPTS": f"{QUICK_JVM} -XX:ArchiveClassesAtExit={made} {_SILENT}"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or not made.exists():
            sys.exit(f"no archive of Spark's classes was written:\n{done.stdout}\n{done.stderr}")
        made.replace(CLASSES)


if __name__ == "__main__":
    write_classes()
