"""``headwater spark pack``: what executors of a cluster need, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.main import SETTINGS

app = typer.Typer(**SETTINGS)


@app.callback()
def spark() -> None:
    """Bring Headwater to the executors of a cluster."""


@app.command()
def pack(
    output: Annotated[
        Path | None,
        typer.Option(
            help="The file to write; headwater-env.tar.gz, or headwater.zip with --py-files."
        ),
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME",
            help="Pack a further distribution that is installed here, any number of times.",
        ),
    ] = None,
    py_files: Annotated[
        bool,
        typer.Option(
            "--py-files",
            help="Write Headwater alone, as plain Python, for executors that have the rest.",
        ),
    ] = False,
) -> None:
    """Write the environment that executors are given by --archives.

    It holds Headwater as it is installed here, compiled, with redis-py, msgspec and pyarrow.
    Executors need the same Python version and the same kind of machine.
    """
    from headwater.spark import packing

    if py_files:
        if with_:
            raise typer.BadParameter(
                "--with packs distributions into an environment, and --py-files writes none"
            )
        packed = packing.pack_module(output or "headwater.zip")
        use = (
            f"spark-submit --py-files {packed.path} "
            f"--conf spark.executorEnv.PYTHONPATH=./{packed.path.name} …"
        )
    else:
        packed = packing.pack_environment(output or "headwater-env.tar.gz", also=with_ or ())
        use = f'headwater.spark.session(master="spark://…", environment="{packed.path}")'
    print(f"{packed.path}: {packed.files:,} files, {packed.bytes / 1e6:.1f} MB")
    print(f"use it: {use}")
