"""What docs/reference/configuration.md says, from the declarations of the settings."""

from __future__ import annotations

from pathlib import Path

from headwater.config.config import SETTINGS
from headwater.config.fixed import FIXED
from headwater.config.setting import EmbeddedUse, Setting

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "configuration.md"

HEAD = """\
# Configuration

Written by `make docs` from the declarations of the settings (`src/headwater/config/`).

Names and syntax are those of redis.conf. A setting comes from, strongest first:

1. a flag: `headwater serve --maxclients 500`
2. the environment: `HEADWATER_MAXCLIENTS=500` (dashes become underscores)
3. a file: `headwater serve --config headwater.conf`
4. its default

A file has one setting a line, `name value`. `#` begins a comment. Values with spaces stand in quotes:
`"…"` knows `\\n`, `\\r`, `\\t`, `\\xHH` and `\\"`, `'…'` only `\\'`. `include path` takes in another file,
or all that fit a pattern (`include conf.d/*.conf`), relative to the file that it stands in; a later
line is stronger than an earlier one. Sizes take `b`, `k` (1000), `kb` (1024), `m`, `mb`, `g`, `gb`.

A name that Headwater does not know, or a value that it cannot take, is an error that names file, line
and the nearest right name; the server does not start then. `CONFIG GET pattern …`, `CONFIG SET name
value …` (all or nothing), `CONFIG RESETSTAT` and `CONFIG REWRITE` work as in Redis.

## Settings

| name | default | meaning | CONFIG SET |
|---|---|---|---|
"""

MIDDLE = """
{several} take several words.
In `client-output-buffer-limit` a class that is not named keeps its limits; `slave` is another word for
`replica`. A client whose unread output passes the hard limit, or the soft one for that many seconds, is
disconnected; 0 is no limit. In protected mode, while there is no password and the server listens at
more than its own machine, clients from elsewhere are turned away.

`user name rule …` defines a user ([security](../guide/security.md#users)). It may stand several times,
once for each user, and cannot be set or read by CONFIG; `ACL SETUSER` does that. A relative `aclfile`
is looked for where the server was started.

## In the url of an embedded store

{embedded}
can be parameters of a `headwater://` url ([embedded](../guide/embedded.md)); {on_disk} with a directory only.

## What can be said but not changed

Clients and existing configuration files ask for these. Their one value is answered and accepted;
another is refused with the reason.

| name | value | why |
|---|---|---|
"""


def page() -> str:
    """The page of the settings, as it should be in the file."""
    settings = SETTINGS.values()
    middle = MIDDLE.format(
        several=listed([each for each in settings if each.kind.several]),
        embedded=listed([each for each in settings if each.embedded is not EmbeddedUse.NEVER]),
        on_disk=listed([each for each in settings if each.embedded is EmbeddedUse.ON_DISK]),
    )
    fixed = "".join(
        f"| `{name}` | {f'`{each.value}`' if each.value else 'empty'} | {each.reason} |\n"
        for name, each in FIXED.items()
    )
    return HEAD + "".join(map(row, settings)) + middle + fixed


def row(setting: Setting) -> str:
    """A setting's line in the table."""
    changes = "no" if setting.fixed_after_start else "yes"
    return f"| `{setting.name}` | `{setting.spelled_default}` | {setting.summary} | {changes} |\n"


def listed(settings: list[Setting]) -> str:
    """Their names in a sentence."""
    names = [f"`{each.name}`" for each in settings]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if names[1:] else names[0]
