"""The contents of docs/reference/api.md, by task and in the order of the page."""

from __future__ import annotations

from typing import Final, NamedTuple


class Shown(NamedTuple):
    """A name on the page."""

    path: str
    """Where it is imported from."""
    name: str = ""
    """Its heading, if it differs from ``path`` without ``headwater.``."""
    constructed: bool = True
    """Whether users call the constructor; only then the page shows it."""
    without: tuple[str, ...] = ()
    """Public members for Headwater's own use, which the page leaves out."""


class Section(NamedTuple):
    """Names for one task. ``text`` introduces them, in Markdown."""

    title: str
    text: str
    shown: tuple[Shown, ...]


def _made(path: str, name: str = "", *, without: tuple[str, ...] = ()) -> Shown:
    """Return a class whose objects users receive but do not construct."""
    return Shown(path, name, constructed=False, without=without)


def _errors(*names: str) -> tuple[Shown, ...]:
    return tuple(_made(f"headwater.errors.{name}", name) for name in names)


_WORKER: Final = "headwater.worker"

SECTIONS: Final = (
    Section(
        "Apps and consumers",
        "An app declares consumers and runs them, with `headwater work` or `App.run`. Guide: "
        "[the worker](../guide/worker.md).",
        (
            Shown("headwater.App", without=("suspects", "consumers")),
            _made(f"{_WORKER}.declare.declaration.ConsumerOptions", "ConsumerOptions"),
            _made(f"{_WORKER}.declare.declaration.StartOptions", "StartOptions"),
            _made(f"{_WORKER}.declare.declaration.BatchOptions", "BatchOptions"),
            _made(f"{_WORKER}.declare.on_dead.OnDeadOptions", "OnDeadOptions"),
            _made(f"{_WORKER}.declare.ticks.ScheduleOptions", "ScheduleOptions"),
        ),
    ),
    Section(
        "Streams and publishing",
        "A stream is declared once for producers and consumers, with the type of its messages. Guide: "
        "[messages and publishing](../guide/worker.md#messages).",
        (
            Shown("headwater.Stream", without=("addition", "alone", "belongs_to", "sending")),
            _made(f"{_WORKER}.declare.stream.SendOptions", "SendOptions"),
            _made(f"{_WORKER}.declare.stream.ManyOptions", "ManyOptions"),
            _made("headwater.Scheduled"),
            Shown("headwater.messages.encode"),
            Shown("headwater.messages.decode"),
        ),
    ),
    Section(
        "What handlers get",
        "The message, and further arguments that parameters request with their annotations. Guide: "
        "[dependencies](../guide/worker-apps.md#dependencies), "
        "[batches](../guide/worker.md#batches).",
        (
            _made("headwater.Delivery", without=("excuse", "mark_lost")),
            _made("headwater.Batch", without=("close",)),
            _made("headwater.Tick"),
            Shown("headwater.Use"),
            _made("headwater.DeadLetter"),
        ),
    ),
    Section(
        "Outcomes and retries",
        "If a handler returns, its entry is acknowledged. An exception determines what happens instead. "
        "Guide: [how a handler ends](../guide/worker.md#how-a-handler-ends).",
        (
            Shown("headwater.Dead"),
            Shown("headwater.Again"),
            _made("headwater.Failed"),
            _made("headwater.PoolProcessDied"),
            Shown("headwater.Backoff"),
            Shown("headwater.Limit"),
            _made("headwater.Ending"),
        ),
    ),
    Section(
        "Middleware and statistics",
        "Code around every delivery, and counters. Guide: [middleware](../guide/worker-apps.md#middleware).",
        (
            Shown("headwater.Middleware"),
            _made("headwater.Statistics"),
            _made(f"{_WORKER}.declare.statistics.ConsumerStatistics", "ConsumerStatistics"),
            _made(f"{_WORKER}.declare.statistics.Counters", "Counters", without=("settled",)),
            _made(f"{_WORKER}.declare.statistics.ConsumerProgress", "ConsumerProgress"),
        ),
    ),
    Section(
        "Testing",
        "The real worker on a store in memory, and real servers, with a clock that the test advances. Guide: "
        "[tests](../guide/worker.md#tests).",
        (
            _made(f"{_WORKER}.testing.AppTest", "AppTest"),
            Shown("headwater.pytest_plugin.headwater_worker", "headwater_worker"),
            Shown(f"{_WORKER}.sync_testing.SyncAppTest", "SyncAppTest"),
            Shown("headwater.testing.ManualClock", "ManualClock"),
            Shown("headwater.testing.server.server_process", "server_process"),
            _made(
                "headwater.testing.server.ServerProcess",
                "ServerProcess",
                without=("flags", "environment", "process"),
            ),
            Shown("headwater.testing.server.server_thread", "server_thread"),
            _made(
                "headwater.testing.server.ServerThread",
                "ServerThread",
                without=("config", "clock", "status", "server", "run"),
            ),
            _made("headwater.testing.server.ServerFailed", "ServerFailed"),
        ),
    ),
    Section(
        "Connecting",
        "redis-py's clients, with timeouts and retries that are safe for streams. Guide: "
        "[the client](../guide/client.md), [embedded stores](../guide/embedded.md).",
        (
            Shown("headwater.connect"),
            Shown("headwater.aio"),
            Shown("headwater.aio.connect"),
            _made("headwater.client.sync.client.Client", "Client"),
            _made("headwater.client.aio.client.AsyncClient", "AsyncClient"),
            _made("headwater.RecoveryReport"),
            _made("headwater.journal.log.report.Cut", "Cut"),
        ),
    ),
    Section(
        "Ids",
        "Types for the arguments and replies of stream commands. Guide: [streams](../guide/streams.md).",
        (
            Shown("headwater.StreamID"),
            Shown("headwater.IDRange"),
        ),
    ),
    Section(
        "Spark: sessions, source and sink",
        "Streams as DataFrames and DataFrames as streams. `pip install 'headwater[spark]'`; importing "
        "`headwater.spark` imports neither pyspark nor pyarrow. Guide: [Spark](../guide/spark.md), "
        "[notebooks](../guide/notebooks.md), [clusters](../guide/spark-cluster.md).",
        (
            Shown("headwater.spark.session"),
            Shown("headwater.spark.read"),
            Shown("headwater.spark.read_stream"),
            Shown("headwater.spark.write"),
            Shown("headwater.spark.write_stream"),
            Shown("headwater.spark.QueryListener"),
            Shown("headwater.spark.TracingListener"),
            Shown("headwater.spark.archived_files"),
            Shown("headwater.spark.serving"),
            Shown("headwater.spark.pack_environment"),
            Shown("headwater.spark.pack_module"),
            _made("headwater.spark.packing.Packed", "Packed"),
        ),
    ),
    Section(
        "Spark: pipelines",
        "Pipelines that turn streams into tables, run from Python. Guide: [pipelines](../guide/pipeline.md).",
        (
            Shown("headwater.spark.pipeline.load"),
            Shown("headwater.spark.pipeline.run"),
            _made(
                "headwater.spark.pipeline.Pipeline",
                without=("sources", "inputs", "conf", "archive", "secrets"),
            ),
            _made("headwater.spark.pipeline.Made"),
            Shown("headwater.spark.pipeline.Progress", without=("begin", "add", "note_lags")),
            _made(
                "headwater.spark.pipeline.progress.TableProgress",
                "TableProgress",
                without=("lags",),
            ),
            _made("headwater.spark.pipeline.Filled", without=("outcome",)),
        ),
    ),
    Section(
        "Errors",
        "`from headwater.errors import NotSent`. Each message says what is wrong, with which value, and how "
        "to fix it.",
        (
            _made("headwater.HeadwaterError"),
            *_errors("DeclarationError", "ConfigError", "EncodeError", "DecodeError"),
            *_errors("Disconnected", "NotSent", "OutcomeUnknown", "NotReplicated"),
            *_errors("StoreInUse", "StoreUnusable", "StoreClosed", "ForkedStore", "JournalDamaged"),
            *_errors("NodePoisoned", "NoRoom", "CommandError", "ProtocolError", "ListenError"),
            *_errors("PipelineError", "ExpectationFailed", "DataLoss", "JavaMissing"),
            _made(f"{_WORKER}.declare.lifespan.StartFailed", "StartFailed"),
            _made(f"{_WORKER}.loop.TaskEnded", "TaskEnded"),
        ),
    ),
)
