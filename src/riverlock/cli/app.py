"""Finds the flow in a user's file."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidConfigError, RiverlockError
from riverlock.flow.flow import Flow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, ModuleType

__all__ = ["App", "find_flow", "load", "parse", "worker_path"]

_MAKERS = ("flow", "build", "build_flow", "make_flow", "main_flow")


@dataclass(frozen=True, kw_only=True)
class App:
    """``APP.py[:NAME]`` from the command line."""

    file: Path
    name: str | None

    @property
    def folder(self) -> Path:
        """The folder of the file; its neighbours can be imported."""
        return self.file.parent


def parse(given: str) -> App:
    """Return which file and which name are meant.

    Raises:
        InvalidConfigError: There is no such file.
    """
    path, name = given, ""
    if not Path(given).is_file():
        before, _, after = given.rpartition(":")
        if before and after.isidentifier():
            path, name = before, after
    file = Path(path).expanduser()
    if not file.is_file():
        raise InvalidConfigError(
            f"app {given!r}",
            expected="a Python file, or FILE:NAME for one of its flows",
            found=f"no file {path}",
            hint="`riverlock new NAME` makes one to start from",
        )
    return App(file=file.resolve(), name=name or None)


class _AsWritten(SourceFileLoader):
    """Compiles a file as it is now, never from bytecode.

    Python takes bytecode for current if the size and the second of the last change
    are the same: a digit that was changed at once would run the code from before.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


@contextmanager
def worker_path(folder: Path) -> Iterator[None]:
    """Let the workers of a session that starts meanwhile import the neighbours."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (str(folder), before) if p)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def load(app: App) -> ModuleType:
    """Load the file as a module; ``__name__`` is not ``"__main__"``.

    Raises:
        RiverlockError: What its code raised; our own errors unchanged.
    """
    if str(app.folder) not in sys.path:
        sys.path.insert(0, str(app.folder))
    name = _module_name(app.file)
    spec = importlib.util.spec_from_file_location(name, app.file)
    if spec is None or not isinstance(spec.loader, SourceFileLoader):
        raise InvalidConfigError(
            f"app {app.file}", expected="a Python file", found=app.file.suffix or "none"
        )
    spec.loader = _AsWritten(name, str(app.file))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except RiverlockError:
        raise
    except Exception as error:
        raise InvalidConfigError(
            f"app {app.file.name}",
            expected="a file that loads",
            found=f"{type(error).__name__}: {error}{_line(error, app)}",
        ) from error
    return module


def _module_name(file: Path) -> str:
    """Name it as an import would, unless another module has the name."""
    stem = file.stem
    taken = stem in sys.modules or stem in sys.stdlib_module_names
    return f"riverlock_app_{stem}" if taken or not stem.isidentifier() else stem


def _line(error: Exception, app: App) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if Path(f.filename).is_relative_to(app.folder)]
    if not mine:
        return ""
    return f", at {mine[-1].filename}:{mine[-1].lineno}: {mine[-1].line}"


def find_flow(module: ModuleType, name: str | None) -> Flow:
    """Return the flow of that name, or the only one, or what the only maker returns.

    Raises:
        InvalidConfigError: There is none, or it is not clear which.
    """
    flows = {n: v for n, v in vars(module).items() if isinstance(v, Flow)}
    makers = {n: v for n, v in vars(module).items() if _is_maker(n, v, module)}
    if name is not None:
        return _named(module, name, [*flows, *makers])
    distinct = {id(f): f for f in flows.values()}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    if not flows and len(makers) == 1:
        return _made(module, next(iter(makers)))
    raise InvalidConfigError(
        f"app {_file(module)}",
        expected="one Flow, or one function that returns it",
        found=_candidates([*flows, *makers]),
        hint="say which: riverlock run FILE:NAME"
        if flows or makers
        else 'write: flow = rl.Flow("name")',
    )


def _named(module: ModuleType, name: str, known: list[str]) -> Flow:
    found = getattr(module, name, None)
    if isinstance(found, Flow):
        return found
    if callable(found):
        return _made(module, name)
    raise InvalidConfigError(
        f"flow {name!r} of {_file(module)}",
        expected="a Flow, or a function that returns one",
        found="no such name" if found is None else repr(found),
        hint=f"there is {_candidates(known)}",
    )


def _made(module: ModuleType, name: str) -> Flow:
    maker: Callable[[], Any] = getattr(module, name)
    found = maker()
    if isinstance(found, Flow):
        return found
    raise InvalidConfigError(
        f"function {name!r} of {_file(module)}",
        expected="one that returns a Flow",
        found=repr(found),
    )


def _is_maker(name: str, found: object, module: ModuleType) -> bool:
    if not inspect.isfunction(found) or found.__module__ != module.__name__:
        return False
    signature = inspect.signature(found)
    if any(p.default is p.empty for p in signature.parameters.values()):
        return False
    returns = signature.return_annotation
    is_annotated = returns is Flow or str(returns).rpartition(".")[2] == "Flow"
    return is_annotated or name in _MAKERS


def _candidates(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _file(module: ModuleType) -> str:
    return Path(module.__file__ or module.__name__).name
