"""Writes docs/reference/api.md, the reference of the Python API, from signatures and docstrings.

    src/*.py ──griffe──▶ objects ──▶ Entry ──▶ Markdown
                           SECTIONS: which objects, in which order

Rule 1. Nothing is imported: griffe reads the sources. So neither pyspark nor compiled modules are needed,
        and docstrings of attributes, overloads and type hints are taken as written.
Rule 2. Every name of the packages in `PUBLIC` is on the page once; tests/tidy checks it.
Rule 3. Every name on the page has a docstring, and so does each of its public members, except those that
        SECTIONS leaves out because they are for Headwater itself.

``python -m tools.api_reference`` writes the page; tests/tidy checks that it is up to date.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from griffe import Alias, Class, Function, GriffeLoader, Module, Object

from tools.api_docstrings import Anchors, first_sentence, markdown
from tools.api_sections import SECTIONS, Section, Shown

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "api.md"
WIDTH = 92

PUBLIC = (
    "headwater",
    "headwater.aio",
    "headwater.worker",
    "headwater.spark",
    "headwater.spark.pipeline",
)
"""The packages whose ``__all__`` is on the page."""

NAMED_DECORATORS = ("classmethod", "contextmanager", "pytest.fixture")
"""The decorators that change how a function is called; the page shows them."""

HEAD = """\
# The Python API

Written by `make docs` from signatures and docstrings. The [guides](../guide) explain with examples; this
page lists every public name, with its arguments, units and errors. The code under each heading shows
where to import a name from: `headwater.App` is `from headwater import App`.

- Durations are strings, such as `"1500ms"`, `"30s"`, `"5m"`, `"1.5h"` or `"2d"`, or a `timedelta`; the
  longest is 366 days.
- Ids are strings in the server's form, such as `"1526569498055-0"`. Names that end in `_ms` are
  milliseconds.
- In signatures `M` is the type of a stream's messages, `T` of a batch's items, `H` the decorated function,
  `Handler` a function that was declared as a consumer, `Pairs` `list[tuple[bytes, bytes]]`, and `Scope`
  `"process"` or `"delivery"`.
- Every error of Headwater is a [`HeadwaterError`](#headwatererror). Error replies of the store raise the
  errors of redis-py (`redis.exceptions`).
"""


class Entry(NamedTuple):
    """A public name on the page."""

    name: str
    """The heading: the name without ``headwater.``."""
    shown: Shown
    object: Any
    """The object of griffe, of the name's definition."""


@cache
def package() -> Module:
    """Load Headwater's sources with griffe."""
    loaded = GriffeLoader(search_paths=[ROOT / "src"], allow_inspection=False).load("headwater")
    assert isinstance(loaded, Module)
    return loaded


def target(path: str) -> Any:
    """Return the object that a dotted path refers to, at its definition."""
    found: Object | Alias = package()[path.removeprefix("headwater.")]
    return found.final_target if isinstance(found, Alias) else found


@cache
def entries(section: Section) -> tuple[Entry, ...]:
    """Return the entries of a section."""
    return tuple(
        Entry(one.name or one.path.removeprefix("headwater."), one, target(one.path))
        for one in section.shown
    )


def page() -> str:
    """Return the text of the page."""
    links = dict(_links())
    parts = [HEAD, *_contents(links)]
    for section in SECTIONS:
        parts.append(f"## {section.title}\n")
        parts.append(f"{section.text}\n")
        for entry in entries(section):
            parts += _entry(entry, links)
    return "\n".join(parts)


def _links() -> Iterator[tuple[str, str]]:
    """Yield names as docstrings write them, with their anchors, in the order of the headings. A method's
    name is ``App.send``."""
    anchors = Anchors()
    for section in SECTIONS:
        yield section.title, anchors.of(section.title)
        for entry in entries(section):
            anchor = anchors.of(entry.name)
            yield from ((name, anchor) for name in {entry.name, entry.shown.path})
            yield from ((f"{entry.name}.{name}", anchor) for name, _one in attributes(entry))
            for name, _method in methods(entry):
                yield f"{entry.name}.{name}", anchors.of(f"{entry.name}.{name}")


def _contents(links: dict[str, str]) -> Iterator[str]:
    """Yield a table for each section: the names, and the first sentence of each docstring."""
    for section in SECTIONS:
        yield f"**[{section.title}](#{links[section.title]})**\n"
        yield "| | |\n|---|---|"
        for entry in entries(section):
            sentence = markdown(first_sentence(docstring(entry.object)), links, own=entry.name)
            cell = " ".join(sentence.split()).replace("|", "\\|")
            yield f"| [`{entry.name}`](#{links[entry.name]}) | {cell} |"
        yield ""


def _entry(entry: Entry, links: dict[str, str]) -> Iterator[str]:
    yield f"### `{entry.name}`\n"
    yield f"```python\n{declaration(entry)}\n```\n"
    own = entry.name
    yield markdown(docstring(entry.object), links, own=own) + "\n"
    described = [_attribute(name, one, links, own) for name, one in attributes(entry)]
    if described:
        word = "Options" if entry.name.endswith("Options") else "Attributes"
        yield f"{word}:\n\n" + "\n".join(described) + "\n"
    for name, method in methods(entry):
        yield f"#### `{entry.name}.{name}`\n"
        signatures = method.overloads or [method]
        lines = "\n".join(signature(one, name, method=True) for one in signatures)
        yield f"```python\n{lines}\n```\n"
        yield markdown(docstring(method), links, own=own) + "\n"


def _attribute(name: str, one: Any, links: dict[str, str], own: str) -> str:
    text = markdown(docstring(one), links, own=own).replace("\n", "\n  ")
    hint = _hint(one)
    kind = "" if hint is None else f": {hint}"
    if "Required[" in kind:
        kind = f"{kind.replace('Required[', '', 1)[:-1]}, required"
    if "StrEnum" in [str(base) for base in one.parent.bases]:
        kind = f" = {_quoted(one.value)}"
    return f"- `{name}{kind}` — {text}" if text else f"- `{name}{kind}`"


def _hint(one: Any) -> Any:
    """Return the annotation of an attribute; for ``self.name = name``, that of the constructor's argument."""
    if one.annotation is None and "__init__" in one.parent.members:
        given = one.parent.members["__init__"].parameters
        if str(one.value) in given:
            return given[str(one.value)].annotation
    return one.annotation


# --- griffe's objects -----------------------------------------------------------------------------


def docstring(one: Any) -> str:
    """Return an object's docstring, without indentation."""
    return one.docstring.value if one.docstring is not None else ""


def _members(entry: Entry) -> Iterator[tuple[str, Any]]:
    """Yield the public members, including those of bases that are not on the page."""
    cls = entry.object
    if not isinstance(cls, Class):
        return
    for name, member in (cls.members | cls.inherited_members).items():
        found: Any = member.final_target if isinstance(member, Alias) else member
        if found.parent is not cls and found.parent.path in _shown():
            continue
        if not name.startswith("_") and name not in entry.shown.without:
            yield name, found


@cache
def _shown() -> frozenset[str]:
    """Return the paths of the definitions of all names on the page."""
    return frozenset(target(one.path).path for section in SECTIONS for one in section.shown)


def methods(entry: Entry) -> list[tuple[str, Function]]:
    """Return the methods to show, with their names."""
    return [(name, one) for name, one in _members(entry) if isinstance(one, Function)]


def attributes(entry: Entry) -> list[tuple[str, Any]]:
    """Return the attributes and properties to show, with their names."""
    return [(name, one) for name, one in _members(entry) if one.is_attribute]


# --- signatures -----------------------------------------------------------------------------------


def declaration(entry: Entry) -> str:
    """Return the declaration of a name: a class with its constructor, a function with its arguments."""
    one, full = entry.object, entry.shown.path
    if isinstance(one, Function):
        is_fixture = "pytest.fixture" in _decorators(one)
        return signature(one, one.name if is_fixture else full, word="")
    if not isinstance(one, Class):
        return f"{full} = {one.value}" if one.is_attribute else f"import {full}"
    bases = [str(base) for base in one.bases]
    made = one.members.get("__init__")
    if isinstance(made, Function) and entry.shown.constructed:
        return signature(made, full, method=True, word="class ")
    if "NamedTuple" in bases and entry.shown.constructed:
        fields = [f"{name}: {member.annotation}" for name, member in attributes(entry)]
        return _call(f"class {full}", fields, "")
    return f"class {full}({', '.join(bases)})" if bases else f"class {full}"


def signature(function: Function, name: str, *, method: bool = False, word: str = "def ") -> str:
    """Return ``def name(…) -> …``, with one argument per line if it is long."""
    parameters = list(function.parameters)[1 if method else 0 :]
    words, starred = [], False
    for one in parameters:
        kind = one.kind.value if one.kind is not None else ""
        if kind == "keyword-only" and not starred:
            words.append("*")
            starred = True
        starred = starred or kind == "variadic positional"
        words.append(_parameter(one, kind, function))
    lines = [f"@{one}" for one in _decorators(function) if one in NAMED_DECORATORS]
    head = f"{'async ' if 'async' in function.labels else ''}{word}{name}"
    is_made = function.name == "__init__" or function.returns is None
    tail = "" if is_made else f" -> {function.returns}"
    return "\n".join([*lines, _call(head, words, tail)])


def _decorators(function: Function) -> list[str]:
    return [str(one.value) for one in function.decorators]


def _parameter(one: Any, kind: str, function: Function) -> str:
    stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
    hint = "" if one.annotation is None else f": {one.annotation}"
    if stars or one.default is None:
        return f"{stars}{one.name}{hint}"
    default = _quoted(one.default)
    if default.isupper() and default in function.module.members:
        constant: Any = function.module.members[default]
        default = _quoted(constant.value)
    return f"{one.name}{hint} = {default}" if hint else f"{one.name}={default}"


def _quoted(value: object) -> str:
    """Return a default or value in double quotes, as in the sources; griffe uses single quotes."""
    text = str(value)
    return f'"{text[1:-1]}"' if text.startswith("'") and '"' not in text else text


def _call(head: str, words: list[str], tail: str) -> str:
    line = f"{head}({', '.join(words)}){tail}"
    if len(line) <= WIDTH:
        return line
    return f"{head}(\n" + "".join(f"    {word},\n" for word in words) + f"){tail}"


# --- used by tests/tidy ---------------------------------------------------------------------------


def undocumented() -> list[str]:
    """Return the names on the page, and their public members, that have no docstring."""
    found = []
    for section in SECTIONS:
        for entry in entries(section):
            members = [(f"{entry.name}.{name}", one) for name, one in _members(entry)]
            found += [
                name for name, one in [(entry.name, entry.object), *members] if not docstring(one)
            ]
    return found


def missing(exported: dict[str, list[str]]) -> list[str]:
    """Return the names that packages export (``{package: names}``) and that are not on the page."""
    return [
        f"{where}.{name}"
        for where, names in exported.items()
        for name in names
        if name != "__version__" and target(f"{where}.{name}").path not in _shown()
    ]


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
