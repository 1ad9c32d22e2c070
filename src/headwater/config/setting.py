"""What a setting is. `setting` declares one as a field of a dataclass:

    @dataclass(kw_only=True)
    class ClientConfig:
        timeout: int = setting(
            0,
            "Seconds after which an idle client is disconnected; 0: never.",
            kind=Integer(0, I32),
        )

The field's name is the setting's, with dashes for underscores. Its annotation is the type: an ``int``
is an `Integer`, a ``Literal`` a `Choice` of its words, unless ``kind`` says more.
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
"""Redis's reasons why CONFIG SET cannot change a setting."""

_DECLARATION, _KIND = "declaration", "kind"
"""What `setting` puts into a field's metadata."""


class EmbeddedUse(Enum):
    """Whether a setting can be a parameter of an embedded store's url."""

    NEVER = "never"
    ON_DISK = "on disk"
    """If the store has a directory."""
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
        """Its name as an attribute of `headwater.config.config.Config`."""
        return self.name.replace("-", "_")

    @property
    def spelled_default(self) -> str:
        """Its default as a file spells it."""
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

    ``fixed_after_start`` is the reason why CONFIG SET cannot change it; empty if it can. A ``secret``
    is left out of logs, MONITOR and SLOWLOG, a ``hidden`` setting out of CONFIG GET too. ``embedded``
    says whether it can be a parameter of a ``headwater://`` url.
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
    """The settings that a dataclass declares, after those of its bases, of which the last comes
    first."""
    types = get_type_hints(declarations)
    for each in fields(declarations):
        if _DECLARATION in each.metadata:
            kind = each.metadata[_KIND] or _kind_of(types[each.name])
            yield each.metadata[_DECLARATION](name=each.name.replace("_", "-"), kind=kind)


def _kind_of(annotation: Any) -> Kind[Any]:
    if get_origin(annotation) is Literal:
        return Choice(*get_args(annotation))
    return KINDS[annotation]
