"""Downloads Redis's and redis-py's tests into ``build/suites``, and prepares Redis's for both servers.

Redis's come from Debian's source package, with separate lists and without root; redis-py's from its source
distribution, of the version in constraints.txt. Nothing of them is committed.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from pathlib import Path
from typing import Final

from tests import peers
from tools.peers import PeerUnavailable, run

ROOT: Final = Path(__file__).resolve().parents[2]

DIRECTORY: Final = ROOT / "build" / "suites"

DEBIAN_RELEASE: Final = "sid"
"""Debian's release with the newest Redis; it is nearest to 8.2.3."""

SERVERS: Final = ("headwater", "redis-8.2")

# A failed test leaves MULTI, WATCH, a pause, a limit or RESP3 behind, and the tests after it would fail as well.
_RESET = """
proc reset_after_failure {} {
    for {set level 0} {$level > -[llength $::servers]} {incr level -1} {
        if {[catch {reconnect $level}]} continue
        foreach call {{client unpause} {config set maxmemory 0} {config set lua-time-limit 5000}
                      {config set min-replicas-to-write 0} {debug set-active-expire 1}} {
            catch {r $level {*}$call}
        }
    }
}
"""

ENDED_EARLY: Final = "A block of tests ended early"
"""Name under which an error outside of a test is reported."""

EDITS: Final = {
    "tests/support/test.tcl": (
        ("    if {$::dump_logs && $failed} {", "    if {$failed} reset_after_failure\n"),
        ("proc test {name code {okpattern undefined} {tags {}}} {", _RESET),
    ),
}
"""File of Redis's suite → anchors, and what is inserted before each."""

REPLACED: Final = {
    # An error outside of a test ends its block of tests, not the run: assertions as well, and the block's
    # server is removed once, not twice.
    "tests/support/server.tcl": (
        (
            "            if {!$assertion && $::durable} {",
            (
                "            if {$::durable} {\n"
                "                dict unset srv client\n"
                "                lappend ::servers $srv\n"
                f"                lappend details {{{ENDED_EARLY}}}"
            ),
        ),
    ),
    # The directory of a server that a test has ended may be gone.
    "tests/support/util.tcl": (
        (
            "proc sanitizer_errors_from_file {filename} {",
            "proc sanitizer_errors_from_file {filename} {\n    if {![file exists $filename]} {return {}}",
        ),
    ),
    "tests/unit/scripting.tcl": (
        # The half of the file that runs each script as a function fails at FUNCTION LOAD.
        ("foreach is_eval {0 1} {", "foreach is_eval {1} {"),
        # Without this subcommand of DEBUG its block of tests can still run.
        (
            "    r debug set-disable-deny-scripts 1",
            "    catch {r debug set-disable-deny-scripts 1}",
        ),
        (
            "    r debug set-disable-deny-scripts 0",
            "    catch {r debug set-disable-deny-scripts 0}",
        ),
    ),
}
"""File of Redis's suite → texts, and what replaces each."""

REDIS_DEFAULTS: Final = {"HEADWATER_LATENCY_TRACKING": "yes"}
"""Settings that tests rely on and whose default is another one in Headwater, as variables of the environment."""

_LAUNCHER = """\
#!/bin/bash
# The suite waits for two lines of Redis's log: its pid, and once per start that it accepts connections.
arguments=()
if [ $# -gt 0 ] && [ "${{1#-}}" = "$1" ]; then
    sed -i -E '/^enable-module-command/d' "$1"
    grep -q '^bind ' "$1" || echo 'bind * -::*' >> "$1"
    arguments=(--config "$1")
    shift
fi
echo " PID: $$ . Server initialized"
export PYTHONPATH={source} {defaults}
exec {program} serve "${{arguments[@]}}" "$@" \\
    > >(sed -u 's/^headwater .* ready at /Ready to accept connections: &/') 2>&1
"""


def redis_suite() -> Path:
    """Return the directory of Redis's sources, downloaded if they are not there yet."""
    directory = DIRECTORY / "debian"
    if not directory.is_dir():
        scratch = DIRECTORY / "apt"
        shutil.rmtree(scratch, ignore_errors=True)
        options = _apt_options(scratch)
        (scratch / "sources.list").write_text(f"deb-src {_debian_site()} {DEBIAN_RELEASE} main\n")
        run("apt-get", *options, "update")
        run("apt-get", *options, "source", "--download-only", "redis", cwd=scratch)
        for archive in sorted(scratch.glob("redis_*.orig.tar.*")):
            with tarfile.open(archive) as opened:
                opened.extractall(directory.with_suffix(".new"), filter="data")
        directory.with_suffix(".new").rename(directory)
        shutil.rmtree(scratch)
    (found,) = directory.iterdir()
    return found


def _apt_options(scratch: Path) -> list[str]:
    for name in ("lists/partial", "cache/archives/partial"):
        (scratch / name).mkdir(parents=True)
    settings = {
        "Dir::State::lists": scratch / "lists",
        "Dir::Cache": scratch / "cache",
        "Dir::Etc::SourceList": scratch / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Debug::NoLocking": 1,
    }
    if os.geteuid() == 0:
        # Otherwise apt downloads as the user _apt, who may not enter the scratch directory.
        settings["APT::Sandbox::User"] = "root"
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _debian_site() -> str:
    """Return the mirror from which this machine installs Debian's packages."""
    if not shutil.which("apt-get"):
        raise PeerUnavailable("apt-get is not installed (Debian needed)")
    format_ = ("--format", "$(ORIGIN) $(COMPONENT) $(SITE)")
    for line in run("apt-get", "indextargets", *format_, "Created-By: Packages").splitlines():
        origin, component, site = line.split()
        if origin == "Debian" and component == "main" and "security" not in site:
            return site
    raise PeerUnavailable("this machine has no source of Debian packages; run apt-get update first")


def redis_py() -> Path:
    """Return the directory of redis-py's sources, downloaded if they are not there yet."""
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (version,) = re.findall(r"^redis==(\S+)$", constraints, re.MULTILINE)
    directory = DIRECTORY / f"redis-{version}"
    if not directory.is_dir():
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        options = ("--quiet", "--no-deps", "--no-binary=:all:", "--dest", DIRECTORY)
        run(ROOT / ".venv/bin/python", "-m", "pip", "download", *options, f"redis=={version}")
        archive = DIRECTORY / f"redis-{version}.tar.gz"
        with tarfile.open(archive) as opened:
            opened.extractall(DIRECTORY, filter="data")
        archive.unlink()
    return directory


def prepared(suite: Path, server: str) -> Path:
    """Return a directory with Redis's tests, adjusted, and ``src/redis-server``, which starts the server."""
    directory = DIRECTORY / server
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "src").mkdir(parents=True)
    shutil.copytree(suite / "tests", directory / "tests")
    shutil.copy(suite / "redis.conf", directory)
    for name, edits in EDITS.items():
        _edit(directory / name, [(anchor, text + anchor) for anchor, text in edits])
    for name, replaced in REPLACED.items():
        _edit(directory / name, list(replaced))
    for tool in ("redis-cli", "redis-benchmark"):
        (directory / "src" / tool).symlink_to(peers.tool(tool))
    launcher = directory / "src" / "redis-server"
    if server == "headwater":
        program = ROOT / ".venv" / "bin" / "headwater"
        defaults = " ".join(f"{name}={value}" for name, value in REDIS_DEFAULTS.items())
        text = _LAUNCHER.format(source=ROOT / "src", program=program, defaults=defaults)
        launcher.write_text(text)
        launcher.chmod(0o755)
    else:
        launcher.symlink_to(peers.tool(server))
    return directory


def _edit(path: Path, edits: list[tuple[str, str]]) -> None:
    text = path.read_text(encoding="utf-8")
    for anchor, replaced in edits:
        if text.count(anchor) != 1:
            raise PeerUnavailable(f"{path} has not one {anchor!r}: adjust tests/suites/sources.py")
        text = text.replace(anchor, replaced)
    path.write_text(text, encoding="utf-8")
