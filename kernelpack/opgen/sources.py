"""Imports the files of op authors and finds the ops in them."""

from __future__ import annotations

import ast
import importlib.util
import linecache
import sys
import types
from collections.abc import Iterable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path

from kernelpack.errors import BuildError, KernelpackError, SourceLocation
from kernelpack.nearest import did_you_mean
from kernelpack.opgen.op import Op, ops_made
from kernelpack.opgen.stated.schema import check_unique

_OURS = "kernelpack"


def find_ops(sources: Sequence[Path], namespace: str) -> list[Op]:
    """Returns the ops of files and folders, in order of file and line.

    A folder stands for its *.py files that do not start with `_` and may hold ops: others are scripts, which are not run. Files can
    import their neighbours (`from . import x`). Raises BuildError for a source that is missing or has no ops, SchemaError for two ops of one name.
    """
    files: list[Path] = []
    cure = "name a file with @kp.op functions, or a folder of such files"
    for source in sources:
        if source.is_dir():
            found = sorted(path for path in source.glob("*.py") if not path.name.startswith("_"))
            if not found:
                raise BuildError(f"{source} holds no *.py files", cure=cure)
            files += filter(_may_hold_ops, found)
        elif source.is_file():
            files.append(source)
        else:
            raise BuildError(f"{source} does not exist", cure=cure)
    ops: list[Op] = []
    places: dict[str, SourceLocation | None] = {}
    unique = list(dict.fromkeys(path.resolve() for path in files))
    for file in unique:
        sys.modules.pop(f"{_package(namespace)}.{file.stem}", None)
        linecache.checkcache(str(file))
    with ops_made() as made:
        for file in unique:
            module = _load(file, namespace)
            own = [op for op in made if op.function.__module__ == module.__name__]  # not those of files that it imports
            for op in sorted(own, key=lambda op: op.location.line):
                check_unique(places, op.name, op.location)
                places[op.name] = op.location
                ops.append(op)
    if not ops:
        raise BuildError(
            f"no ops in {', '.join(map(str, sources))}",
            cure='mark a host function: @kp.op("name(Tensor x) -> Tensor", variants=...)',
        )
    return ops


def check_op_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Raises BuildError, with the nearest, for a name that no op has."""
    ops = sorted(set(known))
    for name in names:
        if name not in ops:
            raise BuildError(f"there is no op {name!r}{did_you_mean(name, ops)}", cure=f"ops are {', '.join(ops)}")


def _may_hold_ops(file: Path) -> bool:
    """Returns whether a file speaks of `op`, or has decorators from elsewhere, which may make ops. One that does not parse is left to
    importing it."""
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError):
        return True
    ours: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            ours |= {alias.asname or _OURS for alias in node.names if alias.name.partition(".")[0] == _OURS}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == _OURS:
            ours |= {alias.asname or alias.name for alias in node.names}
    decorators = [one for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef)) for one in node.decorator_list]
    elsewhere = any(ours.isdisjoint(node.id for node in ast.walk(one) if isinstance(node, ast.Name)) for one in decorators)
    return elsewhere or any("op" in (getattr(node, key, "") for key in ("id", "attr", "name")) for node in nodes)


def _package(namespace: str) -> str:
    return f"kernelpack_ops_{namespace}"


def _load(file: Path, namespace: str) -> types.ModuleType:
    """Imports a file as a module of its own inside a package that is its folder, unless one that was imported before has imported it: what both
    use is one kernel then."""
    package_name = _package(namespace)
    package = sys.modules.get(package_name)
    if package is None or list(package.__path__) != [str(file.parent)]:
        for name in [name for name in sys.modules if name == package_name or name.startswith(package_name + ".")]:
            del sys.modules[name]
        package = types.ModuleType(package_name)
        package.__path__ = [str(file.parent)]
        sys.modules[package_name] = package
    name = f"{package_name}.{file.stem}"
    imported = sys.modules.get(name)
    if imported is not None and imported.__file__ == str(file):
        return imported
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or not isinstance(spec.loader, SourceFileLoader):  # no machine code, which would run at once
        raise BuildError(
            f"{file} is not a Python file", cure="name a *.py file with @kp.op functions, or a folder of such files"
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        where = SourceLocation(error.filename or str(file), error.lineno or 0, error.offset or 0)
        raise BuildError(error.msg, location=where) from None
    except KernelpackError as error:
        error.location = error.location or SourceLocation.of_exception(error, str(file))
        raise
    except (Exception, SystemExit) as error:  # whatever an author's file may raise
        where = SourceLocation.of_exception(error, str(file))
        raise BuildError(f"importing {file.name} failed: {type(error).__name__}: {error}", location=where) from error
    return module
