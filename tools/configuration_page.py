"""Generates docs/reference/configuration.md from the declarations of the settings."""

from __future__ import annotations

from pathlib import Path

from headwater.config.config import SETTINGS
from headwater.config.fixed import FIXED
from headwater.config.inert import ALIASES, INERT
from headwater.config.setting import EmbeddedUse, Setting

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "configuration.md"

HEAD = """\
# Configuration

Written by `make docs` from the declarations of the settings (`src/headwater/config/`).

Names and syntax are those of redis.conf. The value of a setting comes from, in order of precedence:

1. a flag: `headwater serve --maxclients 500`
2. the environment: `HEADWATER_MAXCLIENTS=500` (dashes become underscores)
3. a file: `headwater serve --config headwater.conf`
4. its default

A file has one setting per line, `name value`. `#` begins a comment. Values with spaces are quoted: `"…"`
supports `\\n`, `\\r`, `\\t`, `\\xHH` and `\\"`, `'…'` only `\\'`. `include path` includes another file, or
all files that match a pattern (`include conf.d/*.conf`); paths are relative to the including file. A later
line overrides an earlier one. Units of sizes are `b`, `k` (1000), `kb` (1024), `m`, `mb`, `g`, `gb`.

An unknown name or an invalid value is an error that names the file, the line and the closest valid name;
the server does not start. `CONFIG GET pattern …`, `CONFIG SET name value …` (all or nothing), `CONFIG
RESETSTAT` and `CONFIG REWRITE` work as in Redis.

## Settings

| name | default | meaning | CONFIG SET |
|---|---|---|---|
"""

MIDDLE = """
{several} take several words.
In `client-output-buffer-limit` a class that is not named keeps its limits; `slave` is an alias of
`replica`. A client is disconnected if its unread output exceeds the hard limit, or the soft limit for the
given number of seconds; 0 means no limit. In protected mode the server rejects clients from other
machines if it has no password and listens on more than the loopback address.

`user name rule …` defines a user ([security](../guide/security.md#users)). It may occur several times,
once for each user. CONFIG cannot set or read it; `ACL SETUSER` can. A relative `aclfile` is relative to the
directory in which the server was started.

## In the url of an embedded store

{embedded}
can be parameters of a `headwater://` url ([embedded](../guide/embedded.md)); {on_disk} only with a directory.

## Settings with a fixed value

Clients and existing configuration files use these. Their only value can be read and set; any other value
is refused with the reason.

| name | value | why |
|---|---|---|
"""


INERT_HEAD = """
## Settings without effect

Configuration files of Redis and Valkey use these. Any valid value is accepted and shown; none has an effect. The log
of the start names those that were given.

| settings | why |
|---|---|
"""

ALIASES_HEAD = """
## Other names

| name | stands for |
|---|---|
"""


def page() -> str:
    """Return the text of the page."""
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
    aliases = "".join(f"| `{name}` | `{own}` |\n" for name, own in ALIASES.items())
    own = "".join(map(row, settings))
    return HEAD + own + middle + fixed + INERT_HEAD + inert_rows() + ALIASES_HEAD + aliases


def inert_rows() -> str:
    """Return the rows of the settings without effect, one for each reason."""
    groups: dict[str, list[str]] = {}
    for name, each in INERT.items():
        groups.setdefault(each.reason, []).append(f"`{name}`")
    return "".join(f"| {', '.join(names)} | {reason} |\n" for reason, names in groups.items())


def row(setting: Setting) -> str:
    """Return a setting's row of the table."""
    changes = "no" if setting.fixed_after_start else "yes"
    return f"| `{setting.name}` | `{setting.spelled_default}` | {setting.summary} | {changes} |\n"


def listed(settings: list[Setting]) -> str:
    """Return the settings' names for a sentence."""
    names = [f"`{each.name}`" for each in settings]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if names[1:] else names[0]
