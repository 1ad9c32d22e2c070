"""Tools for tests, part of the public API: clocks to advance, servers to kill, files to crash.

Headwater itself does not import this package, except in `App.test`.
"""

from headwater.testing.clock import ManualClock

__all__ = ["ManualClock"]
