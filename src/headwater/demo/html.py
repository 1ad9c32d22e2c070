"""Reports as self-contained HTML files."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape


def document(title: str, *parts: str) -> str:
    """Return the whole document; ``parts`` are HTML."""
    return _DOCUMENT.format(title=escape(title), style=_STYLE, body="\n".join(parts))


def paragraph(sentences: Iterable[str]) -> str:
    """Return a paragraph of ``sentences``, which are plain text."""
    return f"<p>{escape(' '.join(sentences))}</p>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a list of names with their values."""
    lines = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)
    return "<dl>\n" + "\n".join(lines) + "\n</dl>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; integers are written with a thousands separator."""
    lines = ["".join(f"<th>{escape(name)}</th>" for name in head)]
    lines += ["".join(f"<td>{_cell(value)}</td>" for value in row) for row in rows]
    return "<table>\n" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "\n</table>"


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def figure(title: str, svg: bytes, caption: str) -> str:
    """Return one plot, embedded as an image, so that the ids in its SVG do not clash with others."""
    data = b64encode(svg).decode("ascii")
    return (
        f'<figure><h3>{escape(title)}</h3><img alt="{escape(title)}" '
        f'src="data:image/svg+xml;base64,{data}"><figcaption>{escape(caption)}</figcaption></figure>'
    )


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a202c; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem }
h1 { margin-bottom: 0.2rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: 0.3rem 0.6rem; border-bottom: 1px solid #e2e8f0 }
td:nth-child(2), td:nth-child(3), th:nth-child(2), th:nth-child(3) { text-align: right;
       font-variant-numeric: tabular-nums }
.holds td:last-child, .verdict.holds { color: #2f855a }
.broken, .verdict.broken { color: #c53030; font-weight: 600 }
dl { display: grid; grid-template-columns: max-content auto; gap: 0.1rem 1rem }
dd { margin: 0 }
figure { margin: 2rem 0 }
img { width: 100% }
figcaption { color: #718096 }
"""

_DOCUMENT = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
<h1>{title}</h1>
{body}
</html>
"""
