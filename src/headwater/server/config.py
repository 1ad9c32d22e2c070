"""The configuration: redis.conf's names and syntax, from a file, the environment and flags.

Flags are stronger than the environment (``HEADWATER_APPENDFSYNC=always``), that than the file, and
the file than the defaults. What a setting means, and whether it does anything, is data: `settings`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from headwater import limits
from headwater.commands.call import StreamSettings
from headwater.engine.codecs import NONE, make_codec
from headwater.engine.events import KEYEVENT, KEYSPACE, parse_classes, spell_classes
from headwater.errors import ConfigError
from headwater.resp.inline import quote
from headwater.server.config_file import Directive, directives, rewrite
from headwater.server.settings import (
    FIXED,
    KIB,
    MIB,
    OUTPUT_LIMITS,
    SETTINGS,
    TLS_PROTOCOLS,
    OutputLimit,
    OutputLimits,
    Setting,
)

ENVIRONMENT_PREFIX = "HEADWATER_"

_SUFFIXES = {
    "": 1, "b": 1, "k": 1000, "kb": KIB, "m": 1000**2, "mb": MIB, "g": 1000**3, "gb": KIB * MIB,
}  # fmt: skip

_LISTED_AS = {"normal": "normal", "replica": "slave", "pubsub": "pubsub"}
"""What CONFIG GET client-output-buffer-limit calls the classes of clients."""


@dataclass
class Config:
    """The settings in force. Sizes in bytes, times in seconds.

    >>> Config(port=0).get("client-query-buffer-limit")
    '1073741824'
    """

    port: int = 6379
    bind: tuple[str, ...] = ("127.0.0.1",)
    unixsocket: str = ""
    unixsocketperm: str = "0"
    tls_port: int = 0
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_key_file_pass: str = field(default="", repr=False)
    tls_ca_cert_file: str = ""
    tls_ca_cert_dir: str = ""
    tls_auth_clients: Literal["no", "yes", "optional"] = "yes"
    tls_protocols: tuple[str, ...] = TLS_PROTOCOLS
    tls_ciphers: str = ""
    tls_prefer_server_ciphers: bool = False
    dir: str = "."
    appendonly: bool = True
    appendfsync: Literal["always", "everysec", "no"] = "everysec"
    requirepass: str = field(default="", repr=False)
    aclfile: str = ""
    acl_pubsub_default: Literal["allchannels", "resetchannels"] = "resetchannels"
    acllog_max_len: int = limits.ACL_LOG_LENGTH
    protected_mode: bool = True
    maxclients: int = limits.MAX_CLIENTS
    timeout: int = 0
    tcp_keepalive: int = 300
    tcp_backlog: int = 511
    proto_max_bulk_len: int = limits.MAX_BULK_BYTES
    client_query_buffer_limit: int = limits.MAX_QUERY_BUFFER_BYTES
    client_output_buffer_limit: OutputLimits = OUTPUT_LIMITS
    notify_keyspace_events: str = ""
    stream_node_max_bytes: int = 4 * KIB
    stream_node_max_entries: int = 100
    stream_autoclaim_scan_factor: int = 10
    stream_idmp_duration: int = limits.IDMP_DURATION_S
    stream_idmp_maxsize: int = limits.IDMP_MAXSIZE
    stream_hot_bytes: int = field(default_factory=lambda: limits.STREAM_HOT_BYTES)
    stream_compression: Literal["auto", "zstd", "zlib", "none"] = "auto"
    dump_format: Literal["8.8", "8.2", "7.0"] = "8.8"
    slowlog_log_slower_than: int = 10_000
    slowlog_max_len: int = 128
    lua_time_limit: int = 5000
    latency_monitor_threshold: int = 0
    latency_tracking: bool = False
    latency_tracking_info_percentiles: tuple[str, ...] = ("50", "99", "99.9")
    enable_debug_command: Literal["no", "local", "yes"] = "no"
    loglevel: Literal["debug", "verbose", "notice", "warning", "nothing"] = "notice"
    logfile: str = ""
    log_format: Literal["text", "json"] = "text"
    supervised: Literal["auto", "systemd", "no"] = "auto"
    file: Path | None = None
    """The configuration file that was read, which CONFIG REWRITE writes."""
    users: tuple[tuple[str, ...], ...] = field(default=(), repr=False)
    """The ``user`` lines: of each a name and its rules (`headwater.server.acl.access`)."""

    @property
    def output_ahead_bytes(self) -> int:
        """Bytes of answers in line beyond which a client's further requests wait."""
        return max(limits.MAX_OUTPUT_AHEAD_BYTES, *self.client_output_buffer_limit.normal[:2])

    def output_limit(self, *, listening: bool) -> OutputLimit:
        """How much a client that listens to channels, or one that does not, may leave unread."""
        classes = self.client_output_buffer_limit
        return classes.pubsub if listening else classes.normal

    @property
    def notified_events(self) -> int:
        """The bits of `headwater.engine.events` that are published; 0 without K and E."""
        bits = parse_classes(self.notify_keyspace_events)
        return bits if bits & (KEYSPACE | KEYEVENT) else 0

    def stream_settings(self) -> StreamSettings:
        """What commands on streams need to know."""
        made = StreamSettings()
        self.apply_to_streams(made)
        return made

    def apply_to_streams(self, settings: StreamSettings) -> None:
        """Change ``settings`` in place, for CONFIG SET."""
        settings.node_max_bytes = self.stream_node_max_bytes
        settings.node_max_entries = self.stream_node_max_entries
        settings.autoclaim_scan_factor = self.stream_autoclaim_scan_factor
        settings.dump_format = self.dump_format
        settings.idmp_duration_s = self.stream_idmp_duration
        settings.idmp_maxsize = self.stream_idmp_maxsize

    def get(self, name: str) -> str:
        """The value of a setting, as CONFIG GET and a file spell it."""
        if name in FIXED:
            return FIXED[name].value
        value = getattr(self, SETTINGS[name].attribute)
        if name == "dir":
            return str(Path(value).absolute())
        if name == "client-output-buffer-limit":
            return " ".join(
                f"{_LISTED_AS[kind]} {limit.hard} {limit.soft} {limit.seconds}"
                for kind, limit in self.client_output_buffer_limit._asdict().items()
            )
        if isinstance(value, bool):
            return "yes" if value else "no"
        return " ".join(value) if isinstance(value, tuple) else str(value)

    def shown(self, name: str) -> str:
        """The same as `get`, but for what CONFIG GET keeps to itself."""
        return "" if name in SETTINGS and SETTINGS[name].secret else self.get(name)

    def set(self, name: str, text: str) -> None:
        """Change a setting. Raises `ValueError` with the text of CONFIG SET's error, `KeyError` for
        an unknown name; nothing has changed then."""
        if name in FIXED:
            fixed = FIXED[name]
            if text.strip() not in {fixed.value, f'"{fixed.value}"'}:
                raise ValueError(f"it stays {fixed.value or 'empty'}; {fixed.reason}")
            return
        setting = SETTINGS[name]
        if name == "client-output-buffer-limit":  # classes that are not named keep theirs
            self.client_output_buffer_limit = _changed(self.client_output_buffer_limit, text)
            return
        setattr(self, setting.attribute, parse(setting, text))

    def copy(self) -> Config:
        """The same settings, which can be changed without changing these."""
        return replace(self)

    def rewrite(self, *, users: Iterable[str] = ()) -> None:
        """Make the configuration file say what is in force; ``users`` are its ``user`` lines. Raises
        `OSError`, `ConfigError`."""
        assert self.file is not None, "the caller asks for the file first"
        default = Config()
        rewrite(
            self.file,
            {name: Directive(name, _spelled(entry, self)) for name, entry in SETTINGS.items()},
            {
                name
                for name, entry in SETTINGS.items()
                if getattr(self, entry.attribute) != getattr(default, entry.attribute)
            },
            users=[_quoted(line.split(" ")) for line in users],
        )


def parse(setting: Setting, text: str) -> Any:
    """The value that ``text`` gives a setting; `ValueError` with Redis's text where it has one."""
    kind = setting.kind
    if kind == "boolean":
        if text.lower() not in {"yes", "no"}:
            raise ValueError("argument must be 'yes' or 'no'")
        return text.lower() == "yes"
    if kind == "choice":
        if text.lower() not in setting.choices:
            raise ValueError(
                f"argument(s) must be one of the following: {', '.join(setting.choices)}"
            )
        if setting.name == "stream-compression" and text.lower() != NONE:
            make_codec(text.lower())
        return text.lower()
    if kind in {"integer", "memory"}:
        number = _memory(text) if kind == "memory" else _integer(text)
        if not setting.low <= number <= setting.high:
            raise ValueError(f"argument must be between {setting.low} and {setting.high} inclusive")
        return number
    if setting.name == "notify-keyspace-events":
        return spell_classes(parse_classes(text))
    if setting.name == "tls-protocols":
        return _tls_protocols(text)
    if setting.name == "latency-tracking-info-percentiles":
        return _percentiles(text)
    if setting.name == "unixsocketperm":
        if not text.isdigit() or any(digit in "89" for digit in text) or int(text, 8) > 0o777:
            raise ValueError("argument must be octal permissions, 0 to 777")
        return text
    return tuple(text.split()) if kind == "words" else text


def load(
    *,
    flags: Iterable[tuple[str, str]] = (),
    file: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """The configuration from all its sources; ``environ`` is by default the process's.

    >>> load(flags=[("port", "0"), ("maxclients", "50")], environ={}).maxclients
    50

    Raises `ConfigError`, which names the place, the setting and the remedy.
    """
    config = Config()
    if file is not None:
        config.file = Path(file).absolute()
        for place, directive in directives(config.file):
            _apply(config, place, directive)
    environ = os.environ if environ is None else environ
    for name in (*SETTINGS, *FIXED, "user"):
        variable = ENVIRONMENT_PREFIX + name.upper().replace("-", "_")
        if variable in environ:
            _apply(config, f"environment, {variable}", Directive(name, [environ[variable]]))
    for name, value in flags:
        _apply(config, f"flag --{name}", Directive(name, [value]))
    return config


def flag_pairs(words: Iterable[str]) -> list[tuple[str, str]]:
    """``--name value [value …]`` as redis-server takes them; `ConfigError` for a stray word.

    >>> flag_pairs(["--port", "0", "--bind", "127.0.0.1", "::1", "--requirepass=x y"])
    [('port', '0'), ('bind', '127.0.0.1 ::1'), ('requirepass', 'x y')]
    """
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            found.append((name.lower(), [value] if equals else []))
        elif found:
            found[-1][1].append(word)
        else:
            raise ConfigError(f"{word!r} is no flag; settings are given as --name value")
    for name, values in found:
        if not values:
            raise ConfigError(f"flag --{name}: a value is missing; give it as --{name} value")
    return [(name, " ".join(values)) for name, values in found]


def nearest(name: str) -> str:
    """A hint at the setting that may have been meant, or where they are listed."""
    close = get_close_matches(name, [*SETTINGS, *FIXED], n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "docs/reference/configuration.md lists all."


def _apply(config: Config, place: str, directive: Directive) -> None:
    name, values = directive
    if name == "user":
        words = " ".join(values).split(" ") if len(values) == 1 else values  # one from a flag
        config.users = (*config.users, tuple(words))
        return
    if name not in SETTINGS and name not in FIXED:
        raise ConfigError(f"{place}: {name!r} is no setting of Headwater; {nearest(name)}")
    several = name in FIXED or SETTINGS[name].kind == "words"
    if len(values) != 1 and not several:
        raise ConfigError(f"{place}: {name!r} takes one value, not {len(values)}; quote it")
    text = " ".join(values)
    try:
        config.set(name, text)
    except ValueError as error:
        raise ConfigError(f"{place}: {name!r} cannot be {text!r}: {error}") from None


def _integer(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise ValueError("argument couldn't be parsed into an integer")
    return int(text)


def _memory(text: str) -> int:
    digits = text.rstrip("bBkKmMgG")
    unit = _SUFFIXES.get(text[len(digits) :].lower())
    if unit is None or not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise ValueError("argument must be a memory value")
    return int(digits) * unit


def _tls_protocols(text: str) -> tuple[str, ...]:
    """In the order of their age; none stands for both, as in Redis."""
    wanted = {word.lower() for word in text.split()}
    known = {name.lower(): name for name in TLS_PROTOCOLS}
    if not wanted <= known.keys():
        raise ValueError(
            f"argument must be of {' and '.join(TLS_PROTOCOLS)}; older ones are not secure any more"
        )
    return tuple(name for low, name in known.items() if low in wanted) or TLS_PROTOCOLS


def _percentiles(text: str) -> tuple[str, ...]:
    try:
        found = [float(word) for word in text.split()]
    except ValueError:
        raise ValueError("Invalid latency-tracking-info-percentiles parameters") from None
    if not all(0.0 <= percent <= 100.0 for percent in found):
        raise ValueError(
            "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
        )
    return tuple(f"{percent:.6f}".rstrip("0").rstrip(".") for percent in found)


def _changed(limits_: OutputLimits, text: str) -> OutputLimits:
    """client-output-buffer-limit with the classes in ``text`` set anew."""
    words = text.split()
    if len(words) % 4:
        raise ValueError("Wrong number of arguments in buffer limit configuration.")
    for index in range(0, len(words), 4):
        kind = "replica" if words[index].lower() == "slave" else words[index].lower()
        if kind not in _LISTED_AS:
            raise ValueError("Invalid client class specified in buffer limit configuration.")
        limits_ = limits_._replace(**{kind: _output_limit(*words[index + 1 : index + 4])})
    return limits_


def _output_limit(hard: str, soft: str, seconds: str) -> OutputLimit:
    try:
        limit = OutputLimit(_memory(hard), _memory(soft), _integer(seconds))
        if limit.seconds >= 0:
            return limit
    except ValueError:
        pass
    raise ValueError("Error in hard, soft or soft_seconds setting in buffer limit configuration.")


def _spelled(setting: Setting, config: Config) -> list[str]:
    """A setting's value as words of a line."""
    value = config.get(setting.name)
    return [_quoted((value.split() or [""]) if setting.kind == "words" else [value])]


def _quoted(words: Iterable[str]) -> str:
    """Words as a line of the file."""
    return " ".join(quote(word.encode("utf-8", "surrogateescape")).decode() for word in words)


assert {entry.attribute for entry in SETTINGS.values()} | {"file", "users"} == {
    entry.name for entry in fields(Config)
}, "every setting has its attribute"
