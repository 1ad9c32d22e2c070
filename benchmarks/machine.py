"""Build, commit and machine, as all benchmark reports record them."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import headwater
from headwater._build import hot_modules
from headwater.cli.info import describe

ROOT: Final = Path(__file__).resolve().parents[1]


@cache
def build_kind() -> str:
    """Return the kind of build: ``compiled (30 modules)`` or ``plain``. It takes half a second the first time."""
    return describe(hot_modules(Path(headwater.__file__).parent))


def commit() -> str:
    """Return the commit that is checked out, 40 hex digits, with ``+`` appended if the sources differ from
    it; empty if there is no git repository."""
    found = _git("rev-parse", "HEAD")
    own = ("src", "setup.py", "benchmarks", ":!benchmarks/results")
    changed = _git("status", "--porcelain", "--", *own)
    return found + ("+" if found and changed else "")


def describe_machine() -> dict[str, Any]:
    """Return processor, cores, memory and kernel, without paths or host names: results are published."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {_kernel_version()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def _kernel_version() -> str:
    """Return the kernel's version, such as ``6.18.44``, without the suffix of a distribution or host."""
    return re.split(r"[^0-9.]", platform.release())[0]


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
