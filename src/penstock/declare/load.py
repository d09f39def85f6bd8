"""Find user code: an app by its name on the command line, a handler by reference in another process."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.errors import AppNotFound, HandlerUnreachable, InvalidPipeline, InvalidQuery, SparkAtImport

_NO_SESSION = "SESSION_OR_CONTEXT_NOT_EXISTS"  # what Spark says

_OF_FILE = "penstock_app_"  # begins the names of modules that were imported from a file


def load_object(reference: str, kind: type) -> Any:
    """Load the object of a kind from `file.py`, `file.py:name`, `module` or `module:name`.

    Without a name, the module must define exactly one; `AppNotFound` otherwise.
    """
    file, _, attribute = reference.rpartition(".py:")
    place, _, name = (f"{file}.py", "", attribute) if file else reference.partition(":")
    if reference.endswith(".py"):
        place, name = reference, ""
    if not place:
        raise AppNotFound("Name an app as file.py or module:attribute.")
    module = _module(place)
    if name:
        found = getattr(module, name, None)
        if not isinstance(found, kind):
            raise AppNotFound(f"{place} has no {kind.__name__} called {name!r}.")
        return found
    candidates = {id(value): key for key, value in vars(module).items() if isinstance(value, kind)}
    if len(candidates) != 1:
        what = f"{len(candidates)}: {', '.join(sorted(candidates.values()))}" if candidates else "none"
        raise AppNotFound(f"{place} should define one {kind.__name__}, and has {what}. Name one with {place}:NAME.")
    return getattr(module, next(iter(candidates.values())))


def _module(place: str) -> ModuleType:
    is_file = place.endswith(".py")
    if is_file and not Path(place).is_file():
        raise AppNotFound(f"There is no file {place}.")
    try:
        return load_file(place) if is_file else _import(place)
    except (AppNotFound, InvalidPipeline, InvalidQuery):  # the app was found, and its declaration is wrong
        raise
    except (Exception, SystemExit) as error:
        if _NO_SESSION in str(error):  # Spark starts when all is checked, and tasks import the app without a session
            raise SparkAtImport(f"{place} needs a Spark session while it is imported: {error}.") from error
        why = str(error).rstrip(".")  # most of ours are sentences
        raise AppNotFound(f"{place} cannot be imported: {type(error).__name__}: {why}.") from error


def _import(name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise AppNotFound(f"There is no module {name}.") from error
        raise


def load_file(path: str | Path) -> ModuleType:
    """Import a file under a unique module name, once per process, and put its directory on `sys.path`."""
    found = Path(path).resolve()
    name = f"{_OF_FILE}{found.stem}_{hashlib.sha256(str(found).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if str(found.parent) not in sys.path:
        sys.path.insert(0, str(found.parent))
    spec = importlib.util.spec_from_file_location(name, found)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def app_files() -> list[ModuleType]:
    """Return the modules that `load_file` has imported in this process."""
    return [module for name, module in sys.modules.items() if name.startswith(_OF_FILE)]


@dataclass(frozen=True, slots=True)
class Reference:
    """A function by module and name, or, if it has none, by its pickled code."""

    module: str
    path: str | None
    qualname: str
    code: bytes | None = None

    def resolve(self) -> Any:
        """Return the function in this process."""
        if self.code is not None:
            import cloudpickle

            return cloudpickle.loads(self.code)
        return _attribute(self._home(), self.qualname)

    def _home(self) -> ModuleType:
        """Import the module: an app's file by its path, or by its name where it was sent along to another machine."""
        is_here = self.path is not None and Path(self.path).is_file()
        by_path = self.module == "__main__" or self.module.startswith(_OF_FILE)
        if by_path and is_here:
            return load_file(str(self.path))
        name = Path(self.path).stem if by_path and self.path is not None else self.module
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if is_here:
                return load_file(str(self.path))
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # one of its own imports
            raise HandlerUnreachable(f"There is no file {self.path} here, and no module {name!r}.") from error


def reference_to(function: Any) -> Reference:
    """Make a reference that works in another process; `HandlerUnreachable` if there is none."""
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    home = sys.modules.get(module or "")
    if home is not None and module is not None and _attribute(home, qualname) is function:
        path = getattr(home, "__file__", None)
        spec = getattr(home, "__spec__", None)
        if module == "__main__" and spec is not None:  # python -m package.module
            module = str(spec.name)
        if module != "__main__" or path is not None:
            return Reference(module, path, qualname)
    try:
        import cloudpickle
    except ImportError as error:
        raise HandlerUnreachable(f"{qualname or function!r} is not defined at the top of a module.") from error
    try:
        return Reference(module or "", None, qualname, cloudpickle.dumps(function))
    except Exception as error:
        raise HandlerUnreachable(f"{qualname or function!r} cannot be sent to another process: {error}.") from error


def _attribute(module: ModuleType, qualname: str) -> Any:
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found
