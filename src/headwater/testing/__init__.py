"""Tools for tests, part of the product: a clock to advance, servers to kill, files to crash.

Nothing in Headwater itself imports this room, but `App.test`.
"""

from headwater.testing.clock import ManualClock

__all__ = ["ManualClock"]
