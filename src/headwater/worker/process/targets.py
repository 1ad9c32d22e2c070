"""Finds the app that ``MODULE:APP`` names. The error for a wrong target suggests a correction."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from headwater.errors import DeclarationError, HeadwaterError
from headwater.worker.app import App
from headwater.worker.observe.logs import enable_loggers

_PACKAGE = f"{Path(__file__).parents[2]}/"
"""The directory of the package ``headwater``, whose frames are left out of tracebacks."""


class AppBroken(HeadwaterError):
    """The app's module raised an error while it was imported. The text has the traceback, without the frames of
    Headwater and of the import system."""


def find_app(target: str) -> App:
    """Import the module of ``target``, such as ``shop.orders:app``, and return the app that it names.

    Puts the current directory first on ``sys.path`` if it is not on the path. Raises `DeclarationError` if the app
    does not exist, or if a declaration in the module is invalid, and `AppBroken` for other errors of the module.
    """
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        raise DeclarationError(f"expected MODULE:APP, got {target!r}: {_suggestion(target)}")
    if module_name.endswith(".py") or "/" in module_name:
        raise DeclarationError(
            f"expected a module, got the file {module_name!r}: {_suggestion(target)}"
        )
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise DeclarationError(f"expected a module, got {module_name!r}: {_suggestion(target)}")
    module = _imported(module_name)
    found: object = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise DeclarationError(f"module {module_name!r} has no {attribute!r}{_apps(module)}")
        found = getattr(found, name)
    if not isinstance(found, App):
        raise DeclarationError(
            f"{target} is not an App but of type {type(found).__name__}{_apps(module)}"
        )
    return found


def _imported(name: str) -> ModuleType:
    """Import the module ``name``. Raises the errors of `find_app`."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except DeclarationError as error:
        place = _own_frames(error)[-1:]
        where = f"{place[0].filename}, line {place[0].lineno}: " if place else ""
        raise DeclarationError(f"{where}{error}") from error
    except BaseException as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (name + ".").startswith(missing + "."):
            raise DeclarationError(
                f"there is no module {missing!r} here ({here}) or on the module path of {sys.executable}"
            ) from error
        lines = traceback.format_list(_own_frames(error))
        lines += traceback.format_exception_only(error)
        raise AppBroken(
            f"module {name!r} cannot be imported:\n{''.join(lines).rstrip()}"
        ) from error
    finally:
        enable_loggers()


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the error's traceback without the frames of the import system and of Headwater."""
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_PACKAGE, "<frozen importlib"))
        and not frame.filename.endswith("importlib/__init__.py")
    ]


def _apps(module: ModuleType) -> str:
    """Return a clause that names the apps in the module, for the end of an error; empty if there is no app."""
    names = [name for name, value in vars(module).items() if isinstance(value, App)]
    if not names:
        return ""
    found = ", ".join(map(repr, names))
    return f"; it has the App {found}: write '{module.__name__}:{names[0]}'"


def _suggestion(target: str) -> str:
    """Return advice to write a corrected form of ``target``.

    >>> _suggestion("./shop/orders.py:app"), _suggestion("shop.py"), _suggestion("app")
    ("write 'shop.orders:app'", "write 'shop:app'", "write 'app:app'")
    """
    module, _colon, attribute = target.strip().partition(":")
    path, where = Path(module), ""
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        module = str(path.relative_to(Path.cwd()))
    elif path.is_absolute():
        module, where = path.name, f"in {path.parent} "
    name = module.removesuffix(".py").removeprefix("./").strip("./").replace("/", ".")
    return f"{where}write '{name or 'shop'}:{attribute or 'app'}'"
