"""Prepares a directory for the example: ``python -m examples.declarative.prepare DIRECTORY``.

Spark's Declarative Pipelines require an absolute storage path in the specification, so it is written there.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

SPECIFICATION = """\
name: flights
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""


def prepare(directory: Path) -> None:
    """Copy the transformations to ``directory``, and write spark-pipeline.yml."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "transformations").mkdir(exist_ok=True)
    shutil.copy(
        Path(__file__).parent / "transformations" / "flights.py", directory / "transformations"
    )
    storage = (directory / "storage").absolute().as_uri()
    (directory / "spark-pipeline.yml").write_text(SPECIFICATION.format(storage=storage))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    prepare(parser.parse_args().directory)


if __name__ == "__main__":
    main()
