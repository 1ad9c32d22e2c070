"""Converts docstrings to Markdown: examples and diagrams become code blocks, names become links.

Docstrings are plain text: ````name```` is code, ```Name``` is a name of the API, an indented paragraph is
code, ``>>>`` is an example, ``- `` is a list item, ``docs/guide/worker.md`` is a page.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

_CODE = re.compile(r"``(.+?)``|`(.+?)`", re.DOTALL)
_PAGE = re.compile(r"docs/(guide|adr|reference)/([\w-]+)\.md")
_SENTENCE = re.compile(r"\.(?=\s)(?<!\be\.g\.)")


class Anchors:
    """The anchors that GitHub assigns to the headings of a page, in their order.

    >>> anchors = Anchors()
    >>> anchors.of("Outcomes, and retries"), anchors.of("App.test"), anchors.of("AppTest")
    ('outcomes-and-retries', 'apptest', 'apptest-1')
    """

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def of(self, heading: str) -> str:
        """Return the anchor of the next heading."""
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        before, self._seen[slug] = self._seen[slug], self._seen[slug] + 1
        return f"{slug}-{before}" if before else slug


def first_sentence(docstring: str) -> str:
    """Return the first sentence, in one line.

    >>> first_sentence("A stream\\nof messages. It has a type.")
    'A stream of messages.'
    """
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    end = _SENTENCE.search(paragraph)
    whole = paragraph[: end.start() + 1] if end else paragraph
    return f"{whole[:-1]}." if whole.endswith(":") else whole


def markdown(docstring: str, links: Mapping[str, str], *, own: str) -> str:
    """Return a docstring as Markdown. ``links`` maps names to anchors; ``own`` is the docstring's class."""
    return "\n\n".join(_block(block, links, own) for block in _blocks(docstring))


def _blocks(docstring: str) -> Iterator[list[str]]:
    """Yield the paragraphs."""
    block: list[str] = []
    for line in [*docstring.rstrip().splitlines(), ""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def _block(lines: list[str], links: Mapping[str, str], own: str) -> str:
    if lines[0].startswith(">>>"):
        return "```pycon\n" + "\n".join(lines) + "\n```"
    if all(line.startswith("    ") for line in lines):
        return "```python\n" + "\n".join(line[4:] for line in lines) + "\n```"
    text = _CODE.sub(lambda found: _name(found, links, own), "\n".join(lines))
    return _outside_code(text)


def _name(found: re.Match[str], links: Mapping[str, str], own: str) -> str:
    if found[1] is not None:
        return f"`{found[1]}`"
    name = found[2]
    for full in (f"{own}.{name}", name):
        if full in links and name != own:
            return f"[`{name}`](#{links[full]})"
    return f"`{name}`"


def _outside_code(text: str) -> str:
    """Return the text with links to the pages that it names."""
    return _PAGE.sub(lambda page: f"[{page[0]}]({_relative(page[1], page[2])})", text)


def _relative(folder: str, name: str) -> str:
    return f"{name}.md" if folder == "reference" else f"../{folder}/{name}.md"
