"""Excludes the modules that an executor's Python process has loaded from garbage collection.

Spark's daemon calls ``gc.collect()`` after every task. With pyspark, pyarrow and redis-py loaded, each call
visits 300,000 objects that live as long as the process. That takes 60 ms, as long as a task that
reads a few rows, while the next batch waits for a core.
"""

from __future__ import annotations

import gc

_tasks = 0


def freeze_loaded_objects() -> None:
    """Freeze all objects when the process's second task begins. Each task must call this function at its start.

    By then the first task has loaded all modules, and Spark has collected that task's garbage. Later garbage is
    collected as before, except for frozen objects that become part of a garbage cycle.
    """
    global _tasks
    from pyspark import TaskContext

    if TaskContext.get() is None:
        return  # not an executor but a user's process, whose garbage collector is left alone
    _tasks += 1
    if _tasks == 2:
        gc.freeze()
