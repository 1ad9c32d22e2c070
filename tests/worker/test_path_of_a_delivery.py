"""The path of a delivery through the worker, as calls: each stage once on the way in, and once on the way out."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import asyncio, sys
from pathlib import Path
from headwater import App, Stream
import headwater.worker

app = App("headwater://memory")
orders = Stream("orders", dict, codec="json")
STAGES = {"read/fetch.py": {"_take"}, "read/admission.py": {"accept"}, "run/pool.py": {"offer", "hand_back"},
          "run/handling.py": {"run"}, "run/execute.py": {"call"}, "run/endings.py": {"returned", "end", "_settled"},
          "settle/in_flight.py": {"take", "acknowledge", "settle", "_end"}, "settle/settle.py": {"add"}}
ROOT = Path(headwater.worker.__file__).parent
found, traced = [], []

def note(frame, event, _argument):
    if event == "call" and traced:
        stage = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        name = frame.f_code.co_name
        if name in STAGES.get(stage, ()) and frame.f_lineno == frame.f_code.co_firstlineno:
            found.append(f"{stage.removesuffix('.py')}.{name}")

@app.consumer(orders, group="g")
async def bill(order: dict) -> None:
    found.append("the handler")

async def main():
    async with app.test() as t:
        sys.setprofile(note)
        traced.append(True)
        await orders.send({"number": 1})
        await t.settle()
        sys.setprofile(None)
    print(*found, sep="\\n")

asyncio.run(main())
"""

PATH = """\
read/fetch._take
read/admission.accept
settle/in_flight.take
run/pool.offer
run/handling.run
run/execute.call
the handler
run/endings.returned
settle/in_flight.acknowledge
settle/settle.add
settle/in_flight._end
run/endings._settled
"""


def test_a_delivery_passes_each_stage_once_in_each_direction() -> None:
    # Given a worker of plain Python, whose calls can be followed
    environment = {**os.environ, "HEADWATER_PURE": "1"}
    # When a message is handled
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # Then these are the calls of its stages, up to the reply of the store
    assert done.stdout == PATH, done.stderr
