"""A url's password appears in no plan, log, page, event, checkpoint, process list or error.

A separate driver does what users do, with Spark's web pages enabled and its log at INFO. All output of it and
its children is searched for the password.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import redis

from headwater.testing.server import server_process
from tests.peers import free_port

pytestmark = [pytest.mark.spark, pytest.mark.slice, pytest.mark.xdist_group("spark-secrets")]

PASSWORD = "hunter2/Zq8@ :?#%"  # must be encoded in a url; careless splitting would show a part
SPELLINGS = ("hunter2", quote(PASSWORD, safe=""), PASSWORD)

PROGRAM = """
import json, os, re, sys, urllib.request
from contextlib import suppress
from pathlib import Path

import headwater.spark
from headwater.spark import pipeline
from tests.processes import command_line, descendants

url, place, pages = sys.argv[1], Path(sys.argv[2]), "http://127.0.0.1:" + sys.argv[3]
del sys.argv[1:]
spark = headwater.spark.session(
    master="local[2]",
    config={
        "spark.ui.enabled": "true",
        "spark.ui.port": pages.rpartition(":")[2],
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(place / "events"),
        "spark.eventLog.compress": "false",
        "spark.sql.debug.maxToStringFields": "1000",
        "spark.sql.maxPlanStringLength": "1000000",
        "spark.driver.extraJavaOptions":
            "-Dlog4j2.configurationFile=file:" + str(place / "log4j2.properties"),
    },
)
spark.range(1).collect()

# Reading and writing, as batches
frame = headwater.spark.read(spark, "s", url=url, schema="n bigint")
frame.explain(mode="extended")
frame.explain(mode="formatted")
print(frame, frame._jdf.queryExecution().debug())
assert frame.count() == 5
frame.createOrReplaceTempView("orders")
spark.sql("SELECT sum(n) FROM orders").show()
frame.cache().count()
headwater.spark.write(frame, "copy", url=url)
frame.write.format("headwater").mode("append").option("url", url).option("stream", "copy").save()

# Streaming, from and to the store
stream = headwater.spark.read_stream(spark, "s", url=url, schema="n bigint")
stream.explain(mode="extended")
query = headwater.spark.write_stream(
    stream, "streamed", url=url, checkpoint=place / "checkpoint", name="streaming"
)
query.processAllAvailable()
query.explain(extended=True)
print(query.lastProgress, query.status, query.recentProgress)
pids = [os.getpid(), *descendants(os.getpid())]
print("PROCESSES", len(pids), [command_line(pid) for pid in pids])

# What Spark's pages say while it runs
def fetch(path):
    with urllib.request.urlopen(pages + path, timeout=30) as answer:
        return answer.read().decode(errors="replace")

app = json.loads(fetch("/api/v1/applications"))[0]["id"]
api = f"/api/v1/applications/{app}"
paths = ["/jobs/", "/stages/", "/storage/", "/environment/", "/executors/", "/SQL/", "/StreamingQuery/"]
paths += [api + one for one in ("/jobs", "/stages?details=true", "/environment", "/allexecutors",
                                "/storage/rdd", "/streaming/statistics",
                                "/sql?details=true&planDescription=true&length=100")]
executions = len(json.loads(fetch(api + "/sql?length=100")))
paths += [f"/SQL/execution/?id={number}" for number in range(executions)]
fetched = 0
for path in paths:
    with suppress(urllib.error.HTTPError):
        text = fetch(path)
        fetched += 1
        print("PAGE", path, len(text), text)
for path in re.findall(r'"(/StreamingQuery/statistics[^"]+)"', fetch("/StreamingQuery/")):
    print("PAGE", path, fetch(path.replace("&amp;", "&")))
print("FETCHED", fetched, executions)
query.stop()

# Failures
def fails(action):
    try:
        action()
    except Exception as error:
        print("FAILED", type(error).__name__, error)
        print(*getattr(error, "__notes__", []))
        import traceback
        traceback.print_exc()
    else:
        raise AssertionError("it should have failed")

fails(lambda: headwater.spark.read(spark, "s", url=url, starting_idd="5"))
fails(lambda: headwater.spark.read(spark, "text", url=url, schema="n bigint").count())
fails(lambda: headwater.spark.read(spark, "s", url=url, schema="n date", mode="failfast").count())
wrong = url.replace("hw:", "nobody:")
fails(lambda: headwater.spark.read(spark, "s", url=wrong, schema="n bigint").count())
away = re.sub(r":[0-9]+$", ":1", url)
fails(lambda: headwater.spark.read(spark, "s", url=away, schema="n bigint").count())
fails(lambda: headwater.spark.write(frame, "text", url=url))
fails(lambda: spark.read.format("headwater").option("url", url).option("strem", "s").load())
fails(lambda: spark.read.format("headwater").option("url", url.replace("//", "/")).load())
broken = headwater.spark.write_stream(
    headwater.spark.read_stream(spark, "s", url=url, schema="n date", mode="failfast"),
    "broken", url=url, checkpoint=place / "broken",
)
fails(lambda: broken.processAllAvailable())
print(broken.exception(), broken.lastProgress)

# A pipeline
declared = pipeline.load(place / "orders.toml")
print(declared)
for made in pipeline.run(declared, once=True):
    print(made)
spark.stop()
"""

LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.all.ref = all
appender.all.type = File
appender.all.name = all
appender.all.fileName = {file}
appender.all.layout.type = PatternLayout
appender.all.layout.pattern = %d %p %c: %m%n%ex
"""
"""PySpark's own configuration drops lines below WARN, whatever level is set."""

PIPELINE = """
[spark.conf]
"spark.log.level" = "INFO"

[source.orders]
url = "${HW_SECRET_URL}"
stream = "s"
schema = "n bigint"

[table.numbers]
mode = "append"
sql = "SELECT n FROM orders"
path = "tables/numbers"

[table.total]
mode = "complete"
sql = "SELECT sum(n) AS n FROM numbers"
path = "tables/total"
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[str]:
    """The url of a store that requires a user and a password."""
    # With an ACL file, because a server's command line is in the process list, too.
    users = tmp_path / "users.acl"
    users.write_text("user default off\nuser hw on nopass ~* &* +@all\n")
    with server_process("--appendfsync", "no", "--aclfile", str(users)) as server:
        place = server.url.removeprefix("redis://")
        with redis.Redis.from_url(f"redis://hw:x@{place}") as client:
            client.execute_command("ACL", "SETUSER", "hw", "resetpass", f">{PASSWORD}")
        url = f"redis://hw:{quote(PASSWORD, safe='')}@{place}"
        with redis.Redis.from_url(url) as client:
            for number in range(1, 6):
                client.xadd("s", {"n": number})
            client.set("text", "no stream")
        yield url


@pytest.mark.timeout(400)
def test_a_password_is_never_shown(guarded: str, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "app.py").write_text(PROGRAM)
    (tmp_path / "orders.toml").write_text(PIPELINE)
    (tmp_path / "log4j2.properties").write_text(LOGGING.format(file=tmp_path / "spark.log"))
    # Through the environment, because an argument of the test itself would be in the process list.
    starter = (
        "import os, sys; "
        "sys.argv = ['app', os.environ['HW_SECRET_URL'], *sys.argv[1:]]; "
        "exec(compile(open(sys.argv[2] + '/app.py').read(), 'app.py', 'exec'))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", starter, str(tmp_path), str(free_port())],
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
        env=os.environ | {"HW_SECRET_URL": guarded, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, done.stderr[-4000:]

    written = {
        path.relative_to(tmp_path).as_posix(): path.read_bytes().decode(errors="replace")
        for path in tmp_path.rglob("*")
        if path.is_file() and path.name != "users.acl"
    }
    # Check that the searched output is complete and in clear text.
    events = "".join(text for name, text in written.items() if name.startswith("events/"))
    assert "BatchScan headwater" in events
    assert "SparkListenerSQLExecutionStart" in events
    assert "PAGE /environment/" in said
    assert said.count("PAGE /SQL/execution/?id=") >= 5
    assert "PAGE /StreamingQuery/statistics" in said
    assert "pyspark.daemon" in said.partition("PROCESSES ")[2].partition("PAGE ")[0]
    assert said.count("FAILED ") >= 9
    assert " INFO org.apache.spark.sql.execution" in written["spark.log"]
    assert leaks(said) == []
    assert {name: leaks(text) for name, text in written.items() if leaks(text)} == {}


def leaks(text: str) -> list[str]:
    """Return where the password occurs in any spelling, with the surrounding text."""
    found = re.compile("|".join(re.escape(spelling) for spelling in SPELLINGS))
    return [text[max(0, m.start() - 200) : m.end() + 100] for m in found.finditer(text)][:10]
