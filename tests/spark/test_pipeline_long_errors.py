"""An error of a query ends the run, however long Spark's text for it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.errors import PipelineError
from headwater.spark.pipeline import load, run
from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater",)


def test_an_error_of_many_lines_ends_the_run_and_is_reported(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    # Given a task that fails with a text of 100,000 characters
    shop.add("s", [1])
    file = tmp_path / "long.toml"
    file.write_text(
        f'''
        [source.raw]
        url = "{shop.url}"
        stream = "s"
        schema = "n bigint"

        [table.copy]
        mode = "append"
        sql = """
            SELECT reflect('java.lang.Long', 'parseLong', 'long ' || repeat('x', 100000)) AS n FROM raw
            """
        path = "copy"
        '''
    )

    with pytest.raises(PipelineError, match="table copy: ") as raised:
        run(load(file), once=True, report=lambda *_line: None)

    assert str(raised.value).startswith(str(file))
