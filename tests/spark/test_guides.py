"""The code, options and declarations in the guides are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.options import OPTIONS, GroupOptions, SourceOptions
from headwater.spark.pipeline.declaration.loading import load
from headwater.spark.pipeline.declaration.model import Archive

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guide"


def blocks(guide: str, language: str) -> list[str]:
    text = (GUIDES / guide).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_guides_pipeline_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_URL", "redis://localhost:6379")
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    (tmp_path / "items.csv").write_text("item,category\n")
    text = "\n".join(blocks("pipeline.md", "toml"))
    (tmp_path / "orders.toml").write_text(text)

    pipeline = load(tmp_path / "orders.toml")

    assert set(pipeline.tables) == {
        "sales",
        "by_category",
        "per_hour",
        "last_price",
        "dear",
        "dead_letters",
    }
    assert pipeline.inputs["customers"].options["password"] == "hunter2"
    assert "hunter2" not in repr(pipeline)
    assert [e.action for e in pipeline.tables["sales"].expectations] == ["quarantine", "keep"]
    assert pipeline.tables["sales"].quarantine == tmp_path / "tables" / "sales.quarantine"
    assert pipeline.sources["dead_letters_0"].options["stream"] == "{orders}.dea[d]"
    assert pipeline.archive == Archive(
        tmp_path / "archive", (pipeline.sources["orders"],), keep_ms=7 * 86_400_000
    )


def test_the_guide_lists_every_option_with_its_default() -> None:
    text = (GUIDES / "spark.md").read_text().partition("## Options")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", text, re.MULTILINE)

    assert sorted(name for name, _default in rows) == sorted(OPTIONS)
    defaults = {name: default.strip("`") for name, default in rows}
    fresh = SourceOptions(url="redis://localhost")
    values = {
        "startingId": fresh.starting,
        "endingId": fresh.ending,
        "codec": fresh.codec,
        "mode": fresh.mode,
        "failOnDataLoss": fresh.fail_on_data_loss,
        "ignoreDeletes": fresh.ignore_deletes,
        "includeMetadata": fresh.include_metadata,
        "inferSchema": fresh.infer_schema,
        "samplingEntries": fresh.sampling_entries,
        "pushdown": fresh.pushdown,
        "consumerPrefix": GroupOptions("g").consumer,
    }
    assert {name: defaults[name] for name in values} == {
        name: str(value).lower() for name, value in values.items()
    }


def test_the_guides_python_compiles_and_its_schemas_are_valid() -> None:
    code = [*blocks("spark.md", "python"), *blocks("pipeline.md", "python")]

    for text in code:
        compile(text, "guide", "exec")
    schemas = re.findall(r'\.schema\("(.*?)"\)', "\n".join(code))
    assert schemas
    for schema in schemas:
        parse_schema(schema)
