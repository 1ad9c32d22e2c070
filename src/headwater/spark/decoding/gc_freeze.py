"""What an executor's Python process has loaded, out of the garbage collector's sight.

Spark's daemon calls ``gc.collect()`` after every task. With pyspark, pyarrow and redis-py loaded that
goes through 300,000 objects, all of which live as long as the process: 60 ms after a task that took
one to read a few rows, while the next batch waits for a core.
"""

from __future__ import annotations

import gc

_tasks = 0


def freeze_what_is_loaded() -> None:
    """Called as a task begins: at the process's second, what is loaded is set aside for good.

    The first task has loaded everything, and Spark has collected what it left. What is garbage later
    is found as before; only what is frozen, and becomes a garbage cycle afterwards, stays.
    """
    global _tasks
    from pyspark import TaskContext

    if TaskContext.get() is None:
        return  # not an executor: a process of the user's, whose collector is the user's
    _tasks += 1
    if _tasks == 2:
        gc.freeze()
