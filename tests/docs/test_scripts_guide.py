"""docs/guide/scripts.md: its program runs, and it names all functions of `redis`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwater.testing.node import LocalStore

GUIDE = (Path(__file__).resolve().parents[2] / "docs/guide/scripts.md").read_text(encoding="utf-8")

pytest.importorskip("lupa")


def test_the_program_of_the_guide_runs() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    exec(compile(program, "scripts.md", "exec"), {})


def test_the_guide_names_every_function_of_redis() -> None:
    script = (
        "local t = {} for k, v in pairs(redis) do if type(v) == 'function' then t[#t+1] = k end end"
    )
    names = LocalStore(journaled=False).client()("EVAL", f"{script} return t", 0)
    assert isinstance(names, list)
    for name in names:
        assert isinstance(name, bytes)
        assert f"`{name.decode()}`" in GUIDE
