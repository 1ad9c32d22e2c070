"""``make asan``: compiles the hot modules with AddressSanitizer and traps for integers that overflow, and runs
their tests.

A separate tree in build/asan contains the sources and their extensions, so that the working tree has no
instrumented extensions. Python's memory arenas are not used (PYTHONMALLOC=malloc): within an arena an
overflow would reach other objects instead of a red zone.

Rule 1. A run counts only after three checks: every hot module is compiled and instrumented, and a
        deliberate overflow in the same environment is reported, of memory and of a number.
Rule 2. A single report of the sanitizer, in a server or a test, is a failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests import campaigns
from tests.campaigns import Outcome

ROOT = Path(__file__).resolve().parent.parent
ASAN = ROOT / "build" / "asan"
TREE = ASAN / "tree"
REPORTS = ASAN / "reports"

FLAGS = (
    "-fsanitize=address -fno-omit-frame-pointer -O1 -g "
    "-fno-wrapv -fsanitize=signed-integer-overflow -fsanitize-undefined-trap-on-error"
)
"""Python's own flags have -fwrapv, with which no signed integer overflows. An overflow is a trap, SIGILL, which
AddressSanitizer reports like its own findings: to its log, with the stack."""
STATUS = 99
"""The exit status of a process that the sanitizer has stopped."""

SUM = Path("src", "headwater", "planted_sum")
"""A hot module that only the tree has: the sum of two integers of 64 bits."""
SUM_SOURCES = {
    ".py": "def planted_sum(one, other):\n    return one + other\n",
    ".pxd": "cpdef long long planted_sum(long long one, long long other) except? -1\n",
}

PLANTED = (
    "import ctypes; ctypes.memset(ctypes.create_string_buffer(1000), 0, 2000)",
    "from headwater.planted_sum import planted_sum; planted_sum(2**63 - 1, 1)",
)

LOOK = """
import sys
from pathlib import Path
import headwater
from headwater._build import hot_modules
modules = hot_modules(Path(headwater.__file__).parent)
bare = [one.name for one in modules
        if one.extension() is None or b"__asan_report" not in one.extension().read_bytes()
        or one.compiled_digest() != one.digest()]
print(len(modules), "hot modules in", Path(headwater.__file__).parent)
sys.exit(f"not compiled with the sanitizer: {', '.join(bare)}" if bare else 0)
"""

UNITS = (
    *("scanner", "scanner_inline", "arguments", "replies", "entry_log", "pending", "nodes"),
    *("delivery_order", "group", "facts", "stream", "idempotency", "idempotency_store"),
    *("keyspace", "key_order", "journal_records", "journal_checksum", "replay", "rename_and_copy"),
    *("packing", "sealing", "sealer", "waiting"),
)
SUITES = {
    "the scanner, the replies and the engine, one by one": [
        *(f"tests/unit/test_{name}.py" for name in UNITS),
        *("-m", "not slow and not slice"),
    ],
    "odd arguments and corrupted bytes": [
        *("tests/conformance/test_fuzz.py", "-k", "not made_as_odd_as_can_be"),
    ],
    "numbers at the ends of types": [
        *("tests/conformance/test_numbers.py", "-m", "not slow and not slice"),
    ],
    "malformed requests, whole, byte by byte and over TCP": [
        *("tests/conformance/test_protocol_malformed.py", "tests/conformance/test_three_ways.py"),
        *("tests/conformance/test_over_tcp.py", "tests/conformance/test_protocol_limits.py"),
        *("-m", "not slow"),
    ],
    "any history against the model": [
        *("tests/property/test_store.py", "tests/property/test_pipelined_store.py"),
        *("tests/property/test_values.py", "-m", "not slice"),
    ],
    "histories and pipelines against real servers": [
        *("tests/conformance/test_histories.py", "tests/conformance/test_histories_keys.py"),
        *("tests/conformance/test_stream_histories.py", "-k", "not thousand_commands"),
    ],
    "payloads of DUMP, valid and corrupted, and offloaded jobs": [
        *("tests/unit/rdb", "tests/unit/offloading", "-m", "not slice"),
    ],
    "cases and transcripts": [
        *("tests/conformance/test_cases.py", "tests/conformance/test_transcripts.py"),
        *("tests/conformance/test_dump_ours.py", "-m", "not slow and not slice"),
    ],
}


class Missing(Exception):
    """A tool that the sanitizer needs is missing; the message says which."""


def library() -> Path:
    """Return the compiler's libasan, which must be preloaded."""
    compiler = os.environ.get("CC", "gcc")
    if shutil.which(compiler) is None:
        raise Missing(f"make asan needs gcc, but {compiler} is not installed")
    asked = [compiler, "-print-file-name=libasan.so"]
    found = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    if not found.is_absolute() or not found.exists():
        raise Missing(
            f"make asan needs libasan, but {compiler} does not have it "
            "(Debian, Ubuntu: apt-get install libgcc-12-dev, or the version of your gcc)"
        )
    return found.resolve()


def copy_sources() -> None:
    """Update the tree. Unchanged files keep their time, so that they are not compiled again, unless the flags
    have changed."""
    flags = ASAN / "flags"
    if not flags.exists() or flags.read_text() != FLAGS:
        shutil.rmtree(TREE, ignore_errors=True)
        ASAN.mkdir(parents=True, exist_ok=True)
        flags.write_text(FLAGS)
    wanted = {Path(name) for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE")}
    kept = {".py", ".pxd", ".lua", ".toml", ".typed"}
    for path in (ROOT / "src").rglob("*"):
        if path.suffix in kept and path.is_file():
            wanted.add(path.relative_to(ROOT))
    for name in wanted:
        source, copy = ROOT / name, TREE / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            shutil.copyfile(source, copy)
    for suffix, text in SUM_SOURCES.items():
        copy = TREE / SUM.with_suffix(suffix)
        wanted.add(SUM.with_suffix(suffix))
        if not copy.exists() or copy.read_text() != text:
            copy.write_text(text)
    for path in list((TREE / "src").rglob("*")):
        if path.suffix in kept and path.relative_to(TREE) not in wanted:
            path.unlink()


def compile_tree() -> None:
    """Compile changed modules; show the compiler's output if that fails."""
    environment = {**os.environ, "CFLAGS": FLAGS, "LDFLAGS": "-fsanitize=address"}
    environment.pop("HEADWATER_PURE", None)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    done = subprocess.run(
        command, cwd=TREE, env=environment, capture_output=True, text=True, check=False
    )
    (ASAN / "log").write_text(done.stdout + done.stderr)
    if done.returncode:
        sys.exit(f"the build with the sanitizer failed:\n{done.stdout}{done.stderr}")


def surroundings(preload: Path) -> dict[str, str]:
    """Return the environment in which all tests run."""
    options = f"detect_leaks=0:exitcode={STATUS}:log_path={REPORTS / 'report'}"
    found = {
        **os.environ,
        "LD_PRELOAD": str(preload),
        # 2: faulthandler, which pytest enables, does not get the signal.
        "ASAN_OPTIONS": f"{options}:allocator_may_return_null=1:handle_sigill=2",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join((str(TREE / "src"), str(ROOT))),
    }
    found.pop("HEADWATER_PURE", None)
    return found


def reports() -> list[Path]:
    """Return the sanitizer's reports, one file per process."""
    return sorted(REPORTS.glob("report*"))


def begin() -> None:
    """Delete earlier reports."""
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)


def prove(environment: dict[str, str]) -> None:
    """Check rule 1; exit if it does not hold."""
    look = [sys.executable, "-c", LOOK]
    if subprocess.run(look, env=environment, cwd=ASAN, check=False).returncode:
        sys.exit(f"the tree at {ASAN} is not instrumented; {ASAN / 'log'} may say why")
    for planted in PLANTED:
        overflow = [sys.executable, "-c", planted]
        done = subprocess.run(overflow, env=environment, cwd=ASAN, check=False)
        if done.returncode != STATUS or len(reports()) != 1:
            sys.exit(f"a deliberate overflow was not reported: {planted}")
        begin()


def run(suites: Iterable[str], environment: dict[str, str], more: list[str]) -> list[str]:
    """Run the suites; return the names of those that failed or have a report."""
    failed = []
    for name in suites:
        started = time.monotonic()
        print(f"--- {name}", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-n", "2", "--dist", "loadgroup"]
        command += ["-o", f"pythonpath={TREE / 'src'} {ROOT}", "-o", "timeout=600"]
        done = subprocess.run(
            [*command, *SUITES[name], *more], env=environment, cwd=ROOT, check=False
        )
        written = reports()
        print(f"    {time.monotonic() - started:.0f} s, {len(written)} reports so far", flush=True)
        if done.returncode or written:
            failed.append(name)
    return failed


def main() -> int:
    """Build, check, run. Returns 1 for any failure or report, 2 if a tool is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="suites with this text in their name")
    parser.add_argument("more", nargs="*", help="arguments for pytest, after --")
    wanted = parser.parse_args()
    try:
        preload = library()
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 2
    started = time.monotonic()
    begin()
    copy_sources()
    compile_tree()
    print(f"built in {time.monotonic() - started:.0f} s", flush=True)
    environment = surroundings(preload)
    prove(environment)
    suites = [name for name in SUITES if wanted.only in name]
    failed = run(suites, environment, wanted.more)
    for report in reports():
        print(f"--- {report}\n{report.read_text(errors='replace')[:6000]}")
    print(f"{len(suites)} suites in {time.monotonic() - started:.0f} s; failed: {failed or 'none'}")
    if not wanted.more:
        seconds = time.monotonic() - started
        texts = [report.read_text(errors="replace") for report in reports()]
        part = f"suites with {wanted.only!r}" if wanted.only else "all suites"
        campaigns.record(
            "asan", Outcome(part, None, len(suites), "suites", failed + texts, seconds)
        )
    return 1 if failed or reports() else 0


if __name__ == "__main__":
    sys.exit(main())
