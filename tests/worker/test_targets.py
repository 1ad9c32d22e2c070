"""``headwater work MODULE:APP``: the error for a wrong target says where it is wrong, and the remedy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.errors import DeclarationError
from headwater.worker.process.targets import AppBroken, find_app


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory. The modules imported from it are removed after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


GOOD = "from headwater import App\napp = App('redis://localhost')\nnumber = 5\n"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("shop_a.py:app", "the file 'shop_a.py': write 'shop_a:app'"),
        ("./shop_a.py", "write 'shop_a:app'"),
        ("shop_a", "expected MODULE:APP, got 'shop_a': write 'shop_a:app'"),
        (" ", "expected MODULE:APP, got ' ': write 'shop:app'"),
        ("..shop_a:app", "expected a module, got '..shop_a': write 'shop_a:app'"),
        ("shop-a:app", "expected a module, got 'shop-a'"),
        ("shop_a:shop", "module 'shop_a' has no 'shop'; it has the App 'app': write 'shop_a:app'"),
        ("shop_a:app.x", "has no 'app.x'"),
        ("shop_a:number", "shop_a:number is not an App but of type int; .* write 'shop_a:app'"),
        ("nosuch_a:app", "there is no module 'nosuch_a' here"),
    ],
)
def test_the_error_for_a_wrong_target_has_the_correct_one(
    project: Path, target: str, words: str
) -> None:
    (project / "shop_a.py").write_text(GOOD)
    with pytest.raises(DeclarationError, match=words):
        find_app(target)


def test_the_error_for_a_file_elsewhere_names_the_directory_to_run_in(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = project / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    with pytest.raises(DeclarationError, match=f"in {project} write 'shop_b:app'"):
        find_app(f"{project / 'shop_b.py'}:app")
    with pytest.raises(DeclarationError, match=r": write 'pkg\.shop_b:app'"):
        find_app(f"{inside / 'pkg' / 'shop_b.py'}:app")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_thing_c", "ModuleNotFoundError: No module named 'no_such_thing_c'"),
        ("x = = 1", "SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("def f():\n    1 / 0\nf()", "in f\n.*\nZeroDivisionError"),
    ],
)
def test_the_error_of_a_broken_module_has_only_lines_of_that_module(
    project: Path, source: str, words: str
) -> None:
    (project / "shop_c.py").write_text(f"{source}\n")
    with pytest.raises(
        AppBroken, match=f"(?s)module 'shop_c' cannot be imported:.*{words}"
    ) as raised:
        find_app("shop_c:app")
    message = str(raised.value)
    assert "shop_c.py" in message
    assert "importlib" not in message
    assert "targets.py" not in message


def test_the_error_of_a_refused_declaration_has_its_line(project: Path) -> None:
    (project / "shop_d.py").write_text("from headwater import App\n\napp = App('reddis://x')\n")
    with pytest.raises(DeclarationError, match=r"shop_d\.py, line 3: url='reddis://x' is not the"):
        find_app("shop_d:app")


@pytest.mark.parametrize(
    "line",
    [
        "Stream('orders', int, maxlen=0)",
        "app.consumer(Stream('orders', int), group='g', claim_after='soon')",
        "app.batch(Stream('orders', int), group='g', linger='1 fortnight')",
    ],
)
def test_the_error_of_a_refused_declaration_names_the_users_file(project: Path, line: str) -> None:
    source = "from headwater import App, Stream\napp = App('redis://localhost')\n"
    (project / "shop_f.py").write_text(f"{source}{line}\n")
    with pytest.raises(DeclarationError, match=r"shop_f\.py, line 3: "):
        find_app("shop_f:app")


def test_the_command_line_prints_the_error_without_a_traceback(
    project: Path, run_headwater: Callable[..., str]
) -> None:
    (project / "shop_e.py").write_text("import no_such_thing_e\n")
    message = run_headwater("work", "shop_e:app", status=1, apart=True)
    assert message.startswith("headwater: module 'shop_e' cannot be imported:")
    assert "Traceback" not in message
