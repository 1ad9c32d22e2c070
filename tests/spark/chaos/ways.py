"""The ways from a stream into a sink that a campaign tries, each as users write it.

Two processes use a way: the driver follows the stream with it, and the campaign reads its sink, which must
contain each entry's id once.
"""

from __future__ import annotations

from tests.spark.chaos.pipeline_ways import (
    DeltaPipeline,
    GroupPipeline,
    ParquetPipeline,
    StreamPipeline,
)
from tests.spark.chaos.query_ways import FromPattern, IntoStream, SharedGroup
from tests.spark.chaos.way import Way

WAYS: dict[str, Way] = {
    way.name: way
    for way in (
        ParquetPipeline("parquet"),
        GroupPipeline("group", reading='group = "g"\nminIdleTime = "3s"'),
        DeltaPipeline("delta"),
        StreamPipeline("pipeline-stream"),
        IntoStream(),
        FromPattern(),
        SharedGroup(),
    )
}
