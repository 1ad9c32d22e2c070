"""The programs in docs/guide/worker.md run."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

import headwater

GUIDE = Path(__file__).resolve().parent.parent.parent / "docs" / "guide" / "worker.md"


def _programs(url: str) -> str:
    """All Python code of the guide as one program, on the store at ``url``."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) >= 6
    return "\n".join(blocks).replace("redis://localhost:6379", url)


def test_the_programs_of_the_guide_run(store_url: Callable[[str], str]) -> None:
    url = store_url("headwater")
    names: dict[str, Any] = {}
    exec(compile(_programs(url), str(GUIDE), "exec"), names)

    ids = asyncio.run(names["publish"]())
    ids.append(names["publish_from_a_script"]())
    for name in [name for name in names if name.startswith("test_")]:
        asyncio.run(names[name]())

    with redis.Redis.from_url(url) as client:
        assert [entry_id.decode() for entry_id, _fields in client.xrange("orders")] == ids


@pytest.mark.slow
def test_headwater_work_runs_the_app_of_the_guide(
    store_url: Callable[[str], str], tmp_path: Path
) -> None:
    url = store_url("headwater")
    first_block = _programs(url).split("\n# in a web application")[0]
    (tmp_path / "shop.py").write_text(first_block)
    with headwater.connect(url) as client:
        client.xadd("orders", {"number": 7, "item": "tea", "price": 2.5})
        command = [sys.executable, "-m", "headwater.cli.main", "work", "shop:app"]
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as worker:
            try:
                read: Any = client.xread({"invoices": "0"}, block=30_000)
                assert read[0][1][0][1] == {b"number": b"7", b"total": b"3.0"}
            finally:
                worker.terminate()
        assert worker.returncode == 0
