"""``headwater spark``: packages for a cluster's executors, and the environment of Spark's own programs.

headwater spark pack --output environment.tar.gz
headwater spark env
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from headwater.cli.command import CommandGroup, Option

app = CommandGroup()


@app.add()
def pack(
    output: Annotated[
        Path | None,
        Option(help="File to write: headwater-env.tar.gz, or headwater.zip with --py-files."),
    ] = None,
    with_: Annotated[
        list[str] | None,
        Option(
            "--with",
            metavar="NAME",
            help="Add this installed distribution; may be repeated.",
        ),
    ] = None,
    py_files: Annotated[
        bool,
        Option(
            "--py-files",
            help="Pack only Headwater, as plain Python, for executors that have its dependencies.",
        ),
    ] = False,
) -> None:
    """Write a Python environment that Spark's --archives distributes to executors.

    It contains the installed Headwater with its compiled modules, and the packages that it needs in
    executors: redis, hiredis, msgspec, google-crc32c and pyarrow.
    Executors need the same Python version and the same kind of machine.
    """
    from headwater.spark import packing

    if py_files:
        if with_:
            raise click.BadParameter(
                "--with adds distributions to an environment, but --py-files does not write one"
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


@app.add()
def env() -> None:
    """Print the environment variables that Spark's own programs need, as shell commands.

    For example: eval "$(headwater spark env)" && spark-pipelines run. JAVA_HOME is the system's Java if it
    is 17 or later, otherwise the Java installed by pip. Variables that are set keep their values,
    except a JAVA_HOME that Spark cannot run on.
    """
    import os
    import shlex

    from headwater.spark.sessions import prepare_environment

    prepare_environment(local=True)
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP", "SPARK_HOME"):
        if name in os.environ:
            print(f"export {name}={shlex.quote(os.environ[name])}")
