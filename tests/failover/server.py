"""Runs ``headwater …`` in a process that writes the stacks of its threads to its log at SIGRTMIN, so that the harness can
show where a server hangs."""

from __future__ import annotations

import faulthandler
import signal

from headwater.cli.entry import main

if __name__ == "__main__":
    faulthandler.register(signal.SIGRTMIN, all_threads=True)
    main()
