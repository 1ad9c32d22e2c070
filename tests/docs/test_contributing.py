"""CONTRIBUTING.md is right: each file and name in "Where to change what" exists, and what is added appears everywhere."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from headwater.commands.table import CATEGORIES_OF, every_command
from headwater.messages import CODECS
from headwater.server.services.acl.rules import CATEGORIES
from headwater.spark.core import options
from headwater.worker.declare.statistics import ConsumerProgress, Counters
from headwater.worker.observe.health import WorkerHealth
from headwater.worker.observe.metrics import metrics_text

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def entries() -> dict[str, str]:
    """Return the entries of the section, by their titles."""
    section = PAGE.partition("## Where to change what\n")[2].partition("\n## ")[0]
    found = re.findall(r"^- \*\*(.+?)\*\* (.+?)(?=^- |\Z)", section, re.DOTALL | re.MULTILINE)
    return {title.rstrip("."): " ".join(text.split()) for title, text in found}


def files_of(text: str) -> list[Path]:
    """Return the files and directories that an entry names. A name without a directory is in the last one."""
    found: list[Path] = []
    directory = ROOT
    for word in re.findall(r"`([^`]+)`", text):
        if not re.fullmatch(r"[\w./-]+(\.(py|md|txt|toml)|/)", word) or "xfoo" in word:
            continue
        path = ROOT / word if "/" in word else directory / word
        directory = path if path.is_dir() else path.parent
        found.append(path)
    return found


def names_of(text: str) -> list[str]:
    """Return the names of Python in an entry: `Backoff.delay_ms`, `CODECS`, `decide`."""
    words = re.findall(r"`([A-Za-z_][\w.]*)`", text)
    return [w for w in words if "." not in w or not re.search(r"\.(py|md|txt|toml)$", w)]


def defined(paths: list[Path]) -> set[str]:
    """Return the names that these files define, attributes of classes included as ``Class.name``."""
    found: set[str] = set()
    for path in paths:
        for file in [path] if path.is_file() else path.glob("*.py"):
            if file.suffix != ".py":
                continue
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                found |= _names(node, "")
    return found


def _names(node: ast.AST, prefix: str) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return {prefix + name}
        case ast.ClassDef(name=name, body=body):
            return {prefix + name}.union(*(_names(one, f"{name}.") for one in body))
        case ast.Assign(targets=targets):
            return {prefix + one.id for one in targets if isinstance(one, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {prefix + name}
    return set()


@pytest.mark.slow
@pytest.mark.parametrize("title", entries())
def test_the_files_and_names_of_an_entry_exist(title: str) -> None:
    text = entries()[title]
    paths = files_of(text)
    assert paths, "an entry names a file"
    assert [str(path) for path in paths if not path.exists()] == []
    assert [name for name in names_of(text) if name not in defined(paths)] == []


def test_there_are_sixteen_entries() -> None:
    assert len(entries()) == 16


def test_a_wrong_name_of_an_entry_is_found() -> None:
    text = "Change `Backoff.no_such_name` in `src/headwater/worker/declare/retry.py`."
    (name,) = names_of(text)
    assert name not in defined(files_of(text))
    assert "Backoff.delay_ms" in defined(files_of(text))


# --- what is added appears everywhere ---------------------------------------------------------------


def test_every_counter_and_age_of_a_worker_is_a_metric() -> None:
    one = {"stream": "orders", "group": "g", **dict.fromkeys(names_of_progress(), 1)}
    text = metrics_text([WorkerHealth(worker=0, pid=1, problems=[], consumers=[one])]).decode()
    shown = {
        name.removesuffix("_total")
        for name in re.findall(r"^headwater_worker_(\w+)\{", text, re.MULTILINE)
    }
    assert {name.removesuffix("_seconds") for name in shown} >= {*names_of_progress()}


def names_of_progress() -> list[str]:
    """Return the fields that a worker reports about a consumer, except those that are texts or flags."""
    ages = [name for name in ConsumerProgress._fields if name not in ("joined", "hung")]
    return [*(one.name for one in fields(Counters)), *ages]


def test_every_codec_is_known_to_spark_and_to_the_guides() -> None:
    guides = "".join(
        one.read_text(encoding="utf-8") for one in (ROOT / "docs" / "guide").glob("*.md")
    )
    assert [codec for codec in CODECS if codec not in guides] == []
    # The headers of faststream-json are not part of a row.
    assert {*get_args(options.Codec)} == {*CODECS} - {"faststream-json"}


def test_every_command_is_on_the_page_of_commands() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    assert [
        one.name for one in every_command() if one.name.upper().replace("|", " ") not in page
    ] == []


def test_every_category_of_a_command_is_one_of_acl() -> None:
    assert {name.lstrip("@") for names in CATEGORIES_OF.values() for name in names} <= {*CATEGORIES}


def test_every_option_of_the_source_has_a_reader() -> None:
    declared = {one.name for one in fields(options.SourceOptions)}
    read = {name for name, _read in options._READERS.values()}
    together = {"url", "streams", "pattern", "starting", "ending", "group"}
    assert declared - together == read - together
