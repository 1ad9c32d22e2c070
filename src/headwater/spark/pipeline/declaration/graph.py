"""The order in which tables are made, and the rules about the sources and tables that a table may read.

    source, append ──▶ append, update                   one streaming query each
    append, update, complete, input ──▶ complete        a batch, after the run

A table of mode append or update reads inputs, and each row of sources and append tables once. It reads an append
table from the log of that table's commits, if that table's sink has a log (parquet, delta). Otherwise its query
contains that table's SQL, and reads that table's sources. A complete table reads tables and inputs. It never reads
a source, because a source may be trimmed, and the table's contents must not shrink.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from headwater.spark.pipeline.declaration.model import Table
from headwater.spark.pipeline.declaration.problems import Problems, nearest


def ordered(
    tables: Mapping[str, Table],
    sources: Iterable[str],
    inputs: Iterable[str],
    problems: Problems,
    *,
    unreadable: Container[str] = (),
) -> list[str]:
    """Return the tables' names, each after the tables that it reads; add broken rules to ``problems``.

    ``unreadable`` contains the tables whose sinks cannot be read back.
    """
    kinds = dict.fromkeys(sources, "source") | dict.fromkeys(inputs, "input")
    kinds |= {table.name: table.mode for table in tables.values()}
    for table in tables.values():
        _check(table, kinds, problems, unreadable)
    before = {
        name: [read for read in table.reads if read in tables] for name, table in tables.items()
    }
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError as error:
        around = " → ".join(reversed(error.args[1]))
        problems.add(
            f"table.{error.args[1][0]}.sql",
            f"tables read each other in a circle: {around}. A table can only read tables made before it.",
        )
        return list(tables)


def shared(source: str, tables: Mapping[str, Table], logged: Container[str] = ()) -> list[str]:
    """Return the streamed tables whose queries read ``source``."""
    return [
        name
        for name, table in tables.items()
        if table.mode != "complete" and sources_below(name, tables, [source], logged)
    ]


def sources_below(
    name: str, tables: Mapping[str, Table], sources: Iterable[str], logged: Container[str] = ()
) -> list[str]:
    """Return those of ``sources`` that the table ``name`` reads, directly or through the SQL of other tables.

    The sources of tables in ``logged`` are left out, because such tables are read from their logs.
    """
    through = [one for one in upstream(name, tables, logged) if one not in logged]
    read = {one for table in (name, *through) for one in tables[table].reads}
    return [source for source in sources if source in read]


def upstream(name: str, tables: Mapping[str, Table], logged: Container[str] = ()) -> set[str]:
    """Return every table that ``name`` reads, directly or through tables that are not in ``logged``."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        for read in tables[ahead.pop()].reads:
            if read in tables and read not in found:
                found.add(read)
                if read not in logged:
                    ahead.append(read)
    return found


def _check(
    table: Table, kinds: Mapping[str, str], problems: Problems, unreadable: Container[str]
) -> None:
    key = f"table.{table.name}.sql"
    for read in table.reads:
        if read not in kinds:
            problems.add(
                key,
                f"reads {read!r}, which is not a source, input or table of this file."
                + nearest(read, kinds),
            )
        elif table.mode != "complete" and kinds[read] in {"complete", "update"}:
            when = "by every run" if kinds[read] == "complete" else "by later ones"
            problems.add(
                key,
                f"reads {read!r}, a table of mode {kinds[read]}, whose rows are replaced {when}; an "
                f"{table.mode} table reads sources, inputs and append tables. Change its mode to complete.",
            )
        elif table.mode == "complete" and read in unreadable:
            problems.add(
                key,
                f"reads {read!r}, whose sink cannot be read back; read its sources instead",
            )
        elif table.mode == "complete" and kinds[read] == "source":
            problems.add(
                key,
                f"reads the source {read!r}; entries trimmed there would disappear from the table. Store "
                f"the source in a table of mode append and read that.",
            )
    known = [kinds[read] for read in table.reads if read in kinds]
    follows = {"source", "append"} & set(known)
    if table.mode != "complete" and len(known) == len(table.reads) and not follows:
        problems.add(
            key,
            f"reads no source: a table of mode {table.mode} follows a stream. A table made from files "
            "and finished tables needs mode = 'complete'.",
        )
    if table.mode == "complete" and not table.reads:
        problems.add(key, "reads no table; name one after FROM")
