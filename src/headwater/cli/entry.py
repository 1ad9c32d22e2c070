"""The program ``headwater``: starts a server without click, and runs every other subcommand with click.

Importing click would take a tenth of a server's start time. `headwater.config.loading.flag_pairs` parses
the flags of ``headwater serve`` in both cases, so only ``--help`` needs `headwater.cli.main`.
"""

from __future__ import annotations

import sys

from headwater.errors import HeadwaterError

_INTERRUPTED = 130
"""The exit status after Ctrl-C."""


def main() -> None:
    """Run the command line, and exit the process with its status."""
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


if __name__ == "__main__":
    main()
