"""The setting of keyspace events."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.kinds import Text
from headwater.config.setting import EmbeddedUse, setting
from headwater.engine.keyspace.events import KEYEVENT, KEYSPACE, parse_classes, spell_classes


class EventClasses(Text):
    """Letters that stand for classes of events, formatted in Redis's order."""

    def parse(self, text: str) -> str:
        return spell_classes(parse_classes(text))


@dataclass(kw_only=True)
class EventConfig:
    """Setting that selects the keyspace events to publish."""

    notify_keyspace_events: str = setting(
        "",
        "Classes of keyspace events that are published as messages; empty: none.",
        kind=EventClasses(),
        embedded=EmbeddedUse.ALWAYS,
    )

    @property
    def notified_events(self) -> int:
        """Event classes to publish, as bits of `headwater.engine.keyspace.events`; 0 if neither K nor E is set."""
        bits = parse_classes(self.notify_keyspace_events)
        return bits if bits & (KEYSPACE | KEYEVENT) else 0
