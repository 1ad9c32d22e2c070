"""``python -m headwater`` runs the command ``headwater``."""

from __future__ import annotations

from headwater.cli.entry import main

if __name__ == "__main__":
    main()
