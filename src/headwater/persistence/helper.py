"""The helper process of a checkpoint: replays closed journal files and writes the next image.

    python -P -c '…'        an order on standard input, a report on standard output

Rule 1. It changes nothing but the image file whose number the server has reserved. Only the server replaces
        the manifest.
Rule 2. It holds ``checkpoint.lock`` while it runs, and a starting server waits for that lock. It ends at the
        end of its standard input, a pipe, because then the server is gone.
Rule 3. It refuses an order of a server with other sources (digest.py).
Rule 4. It has low priority: the server and its clients come first. If memory is short, the system ends the
        helper and not the server.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

from headwater.errors import HeadwaterError, JournalDamaged
from headwater.journal.disk.files import DiskFiles
from headwater.persistence.building import build_image
from headwater.persistence.digest import source_digest
from headwater.persistence.order import BuiltImage, CheckpointFailed, CheckpointOrder, encode_report

_NICENESS = 10

OTHER_SOURCES = (
    "the package headwater has changed on disk since this process loaded it. Restart the process to use "
    "the new version; until then no image can be written"
)


def main() -> int:
    """Carry out the order on standard input. Return the exit status: 0 if the image was written."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the server, which ends this process
    order = CheckpointOrder.decode(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_server, name="headwater-lifeline", daemon=True).start()
    with suppress(OSError, AttributeError):
        os.nice(_NICENESS)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    result = _carry_out(order)
    sys.stdout.buffer.write(encode_report(result))
    sys.stdout.buffer.flush()
    return 0 if isinstance(result, BuiltImage) else 1


def _carry_out(order: CheckpointOrder) -> BuiltImage | CheckpointFailed:
    if source_digest() != order.digest:
        return CheckpointFailed(OTHER_SOURCES)
    files = DiskFiles(order.directory)
    try:
        files.lock_images()
        return build_image(files, order)
    except JournalDamaged as error:
        return CheckpointFailed(str(error), damaged=True)
    except (HeadwaterError, OSError, MemoryError) as error:
        return CheckpointFailed(str(error) or type(error).__name__)
    finally:
        files.unlock()


def _end_with_server() -> None:
    """Read standard input to its end, then end this process immediately. The next start removes an
    unfinished image."""
    with suppress(OSError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    os._exit(1)
