"""`Setting`, the declaration of a setting. `setting` declares one as a field of a dataclass:

    @dataclass(kw_only=True)
    class ClientConfig:
        timeout: int = setting(
            0,
            "Seconds after which an idle client is disconnected; 0: never.",
            kind=Integer(0, I32),
        )

The setting's name is the field's, with dashes for underscores. The annotation determines the kind:
`Integer` for an ``int``, `Choice` of its words for a ``Literal``. ``kind`` overrides it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import partial
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from headwater.config.kinds import KINDS, Choice, Kind

T = TypeVar("T")

AT_START = "can't set immutable config"
PROTECTED = "can't set protected config"
"""Reasons why CONFIG SET cannot change a setting, in the words of Redis's errors."""

ONLY_AT_START = f"{AT_START}; it can be set only at the start"
"""Reason for a setting that Redis can change or does not have. CONFIG SET accepts the current value of such a
setting, so that a client can write back what CONFIG GET returned for it."""

_DECLARATION, _KIND = "declaration", "kind"
"""Keys of the metadata that `setting` stores in a field."""


class EmbeddedUse(Enum):
    """Condition under which a setting may be a parameter of an embedded store's url."""

    NEVER = "never"
    ON_DISK = "on disk"
    """Allowed only if the store has a directory."""
    ALWAYS = "always"


@dataclass(frozen=True)
class Setting:
    """The declaration of a setting; see `setting`."""

    name: str
    kind: Kind[Any]
    default: Any
    summary: str
    fixed_after_start: str
    secret: bool
    hidden: bool
    embedded: EmbeddedUse

    @property
    def attribute(self) -> str:
        """The name as an attribute of `headwater.config.config.Config`."""
        return self.name.replace("-", "_")

    @property
    def spelled_default(self) -> str:
        """The default as a configuration file writes it."""
        return self.kind.spell(self.default)


def setting(
    default: T,
    summary: str,
    *,
    kind: Kind[Any] | None = None,
    fixed_after_start: str = "",
    secret: bool = False,
    hidden: bool = False,
    embedded: EmbeddedUse = EmbeddedUse.NEVER,
) -> T:
    """Declare a setting.

    ``fixed_after_start`` is the reason why CONFIG SET cannot change the setting; empty if it can. Logs,
    MONITOR and SLOWLOG omit the value of a ``secret`` setting, and CONFIG GET omits that of a ``hidden`` setting.
    ``embedded`` determines if a setting may be a parameter of a ``headwater://`` url.
    """
    declaration = partial(
        Setting,
        default=default,
        summary=summary,
        fixed_after_start=fixed_after_start,
        secret=secret,
        hidden=hidden,
        embedded=embedded,
    )
    metadata = {_DECLARATION: declaration, _KIND: kind}
    return field(default=default, repr=not secret, metadata=metadata)


def settings_of(declarations: type[Any]) -> Iterator[Setting]:
    """Yield the settings of a dataclass: first those of its bases, the last base first, then those declared in
    the class itself."""
    types = get_type_hints(declarations)
    for each in fields(declarations):
        if _DECLARATION in each.metadata:
            kind = each.metadata[_KIND] or _kind_of(types[each.name])
            yield each.metadata[_DECLARATION](name=each.name.replace("_", "-"), kind=kind)


def _kind_of(annotation: Any) -> Kind[Any]:
    if get_origin(annotation) is Literal:
        return Choice(*get_args(annotation))
    return KINDS[annotation]
