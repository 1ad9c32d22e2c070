"""The program ``headwater``: starts a server without the command line's parser, anything else with it.

typer and what it imports take as long as the rest of a server's start. A command line of which every
word is ``--name value`` or ``--name=value`` needs no parser. All others, and so all mistakes and
``--help``, are left to `headwater.cli.main`, which treats a plain command line in the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from headwater.errors import HeadwaterError

_INTERRUPTED = 130
"""The exit status after Ctrl-C."""


def main() -> None:
    """Run the command line, and exit the process with its status."""
    flags = plain_flags(sys.argv[2:]) if sys.argv[1:2] == ["serve"] else None
    if flags is None:
        from headwater.cli.main import main as parse

        parse()
        return
    from headwater.cli.serving import serve

    try:
        sys.exit(serve(flags))
    except HeadwaterError as problem:
        print(f"headwater: {problem}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def plain_flags(words: Iterable[str]) -> list[tuple[str, str]] | None:
    """Return the flags of a plain command line; None if it needs a parser.

    >>> plain_flags(["--port", "0", "--config=a.conf"])
    [('port', '0'), ('config', 'a.conf')]
    >>> plain_flags(["--bind", "127.0.0.1", "::1"]), plain_flags(["--help"])
    (None, None)
    """
    flags = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word[2:].partition("=")
        if not equals:
            value = next(rest, "-")
        plain = word.startswith("--") and name.islower() and name != "help"
        if not plain or value.startswith("-"):
            return None
        flags.append((name, value))
    return flags


if __name__ == "__main__":
    main()
