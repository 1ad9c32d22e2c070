"""Compiles the hot modules if Cython and a C compiler are available; pyproject.toml has the rest.

Rule 1. A module with a ``.pxd`` next to its ``.py`` is compiled (headwater/_build.py).
Rule 2. Nothing here may fail an installation: without Cython, without a compiler or with
        HEADWATER_PURE=1 the same sources are installed and run as plain Python.
Rule 3. An extension of other sources is removed, so that a failed compilation leaves plain Python
        rather than stale code.
Rule 4. Extensions have debug symbols only if CFLAGS requests them (``CFLAGS=-g``).
Rule 5. What Cython would write into every extension alike (functions' types, keyword arguments, imports)
        is in one, `headwater._shared`: an eighth of the wheel. Without it none can be imported, so all
        are removed then.
Rule 6. A long build shows its progress on standard output; errors of the compiler go to standard error.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
PACKAGE = Path("src", "headwater")
DIGESTS = Path("build", "digests")

DIRECTIVES = {
    "language_level": 3,
    # Annotations are for mypy; C types come only from the .pxd.
    "annotation_typing": False,
    "boundscheck": True,
    "wraparound": True,
    "initializedcheck": False,
    # No object of a compiled class is pickled; the code for it is a tenth of an extension.
    "auto_pickle": False,
}

HOT = {
    "commands.call",
    "commands.dispatch",
    "commands.group_reads",
    "commands.ids",
    "commands.reply_tail",
    "commands.xack",
    "commands.xadd",
    "commands.xclaim",
    "commands.xrange",
    "commands.xread",
    "commands.xreadgroup",
    "commands.xsettle",
    "engine.groups.delivery_order",
    "engine.entries.entry_block",
    "engine.entries.entry_log",
    "engine.facts.fact_reader",
    "engine.facts.facts",
    "engine.groups.group",
    "engine.redis_nodes.node_runs",
    "engine.redis_nodes.nodes",
    "engine.redis_nodes.packed_nodes",
    "engine.groups.pending",
    "engine.groups.pending_block",
    "engine.replay.replay",
    "engine.streams.stream",
    "journal.format.batches",
    "journal.log.journal",
    "journal.format.records",
    "journal.log.writing",
    "resp.arguments",
    "resp.replies",
    "resp.scanner",
    "server.net.sockets",
    "server.session.clients",
    "server.session.output",
    "server.session.session",
    "server.turn.execution",
    "server.turn.node",
}
"""Modules in which -O3 saves up to 8 % of the instructions of a command (XACK of 100 ids)."""

RARE = {
    "common.clock",
    "commands.times",
    "commands.xdel",
    "commands.xpending",
    "commands.xtrim",
    "engine.image.image_facts",
    "engine.replay.restoring",
    "engine.tier.warming",
    "common.forks",
    "journal.segments.blobs",
    "journal.disk.files",
    "journal.log.flusher",
    "journal.disk.reads",
    "journal.log.reserve",
    "rdb.codes",
    "rdb.listpack",
    "rdb.pending",
    "rdb.stream_nodes",
    "server.services.blocking",
    "server.services.memory_use",
    "server.services.observability.traffic",
    "server.services.pausing",
    "server.services.runner",
    "server.services.scripting.calls",
    "server.services.scripting.interpreter",
    "server.services.scripting.values",
    "server.services.state",
    "server.services.waiting",
    "server.session.client_info",
    "server.session.subscriptions",
    "server.session.transaction",
    "server.session.user",
    "worker.run.batch_pool",
    "worker.declare.batches",
    "worker.run.batching",
    "worker.settle.results",
    "worker.run.slow",
}
"""Modules of which a command runs few instructions. -Os makes them a fifth smaller than -O1 does: all extensions
together must fit into the wheel."""

COLD = {
    "commands.values.strings",
    "commands.values.typed",
    "engine.bodies.blobs",
    "engine.redis_nodes.entry_fields",
    "engine.keyspace.key_order",
    "engine.keyspace.keyspace",
    "engine.shared.keyspace_state",
    "engine.redis_nodes.radix_nodes",
    "engine.replay.replay_steps",
    "engine.bodies.sealed_block",
    "messages.codecs",
}
"""Modules that -O1 compiles in two thirds of the time, and that are as fast then."""


def load_build_helpers() -> ModuleType:
    """Load headwater/_build.py by its path, because the package is not installed yet."""
    spec = importlib.util.spec_from_file_location("_build", ROOT / PACKAGE / "_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_build"] = module
    spec.loader.exec_module(module)
    return module


BUILD = load_build_helpers()


def optimization(module: str) -> str:
    """Return the compiler's flag for a module."""
    name = module.removeprefix("headwater.")
    if name in HOT:
        return "-O3"
    if name in RARE:
        return "-Os"
    return "-O1" if name in COLD else "-O2"


def digest_source(module: Any) -> str:
    """Write a C file that contains only the digest of the module's sources, and return its path.

    The file is written only if the digest has changed: its time decides what is compiled again.
    """
    path = DIGESTS / f"{module.name}.c"
    symbol = f"headwater_sources_{module.name.replace('.', '_')}"
    text = (
        "#if defined(__GNUC__) || defined(__clang__)\n__attribute__((used))\n#endif\n"
        f'const char {symbol}[] = "{BUILD.MARK}{module.name}:{module.digest()}";\n'
    )
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(path)


def extensions() -> list[Extension]:
    """Return an extension for each hot module; none if plain Python is requested or Cython is missing."""
    hot = BUILD.hot_modules(ROOT / PACKAGE)
    if os.environ.get("HEADWATER_PURE") == "1" or not hot:
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        print("headwater: Cython is not installed, so the sources are installed as plain Python")
        return []
    wanted = [
        Extension(module.name, [str(module.source.relative_to(ROOT)), digest_source(module)])
        for module in hot
    ]
    print(f"headwater: translating what changed of {len(wanted)} modules to C", flush=True)
    shared = DIGESTS / f"{BUILD.SHARED}.c"  # Cython takes the module's name from the file's
    made: list[Extension] = cythonize(
        [*wanted, Extension(BUILD.SHARED, [str(shared)])],
        compiler_directives=DIRECTIVES,
        nthreads=os.cpu_count() or 1,
        quiet=True,
        shared_utility_qualified_name=BUILD.SHARED,
    )
    for extension in made:
        extension.optional = True  # cythonize drops the flag
    return made


class BuildExtensions(build_ext):
    """build_ext in parallel, without stale extensions in the source tree."""

    parallel: int | None
    built = 0
    """How many extensions have been made, by several threads; a count that is off by one does no harm."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.parallel is None:
            self.parallel = os.cpu_count()

    def build_extensions(self) -> None:
        # Debug symbols are five sixths of an extension's size and a third of its compile time. -O3, which
        # Python was built with, makes extensions larger by a tenth and pays only in `HOT`. Looking for
        # warnings in generated code takes a tenth of the time. Unwind tables, a twentieth of the wheel, serve
        # C++ exceptions, which generated code does not have. Names of static functions are as much again;
        # HEADWATER_SYMBOLS=1 leaves them in, for perf and valgrind.
        if self.compiler.compiler_type == "unix" and "CFLAGS" not in os.environ:
            for extension in self.extensions:
                extension.extra_compile_args += [
                    "-g0",
                    "-w",
                    "-fno-asynchronous-unwind-tables",
                    optimization(extension.name),
                ]
                if sys.platform == "linux" and "HEADWATER_SYMBOLS" not in os.environ:
                    extension.extra_link_args.append("-Wl,--strip-all")
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        super().build_extension(ext)
        self.built += 1
        if self.built % 5 == 0 or self.built == len(self.extensions):
            print(f"headwater: {self.built} of {len(self.extensions)} modules compiled", flush=True)

    def run(self) -> None:
        self.remove_stale()
        super().run()
        self.remove_stale()  # after a failed compilation build_ext copies the last extension

    def remove_stale(self) -> None:
        """Remove extensions of other sources from the source tree and from the build directory; all of a
        directory without the shared one."""
        for package in (ROOT / PACKAGE, Path(self.build_lib, PACKAGE.name)):
            usable = BUILD.shared_extension(package) is not None
            for module in BUILD.hot_modules(ROOT / PACKAGE):
                source = package / module.source.relative_to(ROOT / PACKAGE)
                extension = module._replace(source=source).extension()
                if extension is None:
                    continue
                if not usable or BUILD.digest_in(extension, module.name) != module.digest():
                    extension.unlink()
        for extension in BUILD.left_over(ROOT / PACKAGE):
            extension.unlink()


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildExtensions})
