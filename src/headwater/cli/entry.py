"""The program ``headwater``: starts a server without click, and runs every other subcommand with click.

Importing click would take a tenth of a server's start time. `headwater.config.loading.flag_pairs` parses
the flags of ``headwater serve`` in both cases, so only ``--help`` needs `headwater.cli.main`.
"""

from __future__ import annotations

import os
import sys

from headwater.errors import HeadwaterError

_INTERRUPTED = 130
"""The exit status after Ctrl-C."""


def main() -> None:
    """Run the command line, and exit the process with its status."""
    _open_standard_streams()
    if sys.argv[1:2] != ["serve"] or {"-h", "--help"} & {*sys.argv}:
        from headwater.cli.main import main as parse

        parse()
        return
    from headwater.cli.serving import serve

    try:
        sys.exit(serve(sys.argv[2:]))
    except HeadwaterError as problem:
        from headwater.cli.main import complain

        complain(str(problem))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _open_standard_streams() -> None:
    """Open the null device for each standard stream that the caller has closed, as in ``headwater … >&-``.

    Otherwise the stream would be None, and the first file or socket that is opened would get its descriptor.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # `os.open` returns the lowest free descriptor, which is that of the stream.
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", errors="replace"))


if __name__ == "__main__":
    main()
