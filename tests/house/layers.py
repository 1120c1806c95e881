"""The floors of the house: which room may import which. A room is a module of kernelpack, or a folder with all in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FLOORS: tuple[tuple[str, ...], ...] = (
    ("_C", "backends", "dtypes", "errors", "lazy", "nearest", "version"),
    ("knobs", "limits", "process_wide", "refusals", "target"),
    ("as_triton", "facts", "files", "options"),
    ("compiled", "config"),
    ("descriptors", "ir"),
    ("analysis", "context", "kernel", "layout", "llvm"),
    ("pack", "passes", "profiler", "semantics", "testing"),
    ("language", "ship"),
    ("backends.devices",),
    ("backends.base", "frontend", "tools"),
    ("backends.installed",),
    ("backends.cpu.facts", "backends.cpu.math", "backends.gpu"),
    ("backends.cpu.plan", "backends.gpu.facts"),
    ("backends.cpu.device", "backends.cpu.emit", "backends.cpu.ttir", "backends.gpu.lowering", "backends.gpu.passes"),
    ("backends.cpu", "backends.cuda.machine"),
    ("backends.cuda.schedule.loop_schedule",),
    ("backends.cuda.context",),
    (
        "backends.cuda.assemble",
        "backends.cuda.device",
        "backends.cuda.hopper",
        "backends.cuda.passes",
        "backends.cuda.schedule",
    ),
    ("backends.cuda.lowering",),
    ("backends.amd", "backends.cuda"),
    ("compiler",),
    ("runtime",),
    ("opgen.stated", "simt"),
    ("opgen.host",),
    ("opgen.op",),
    ("opgen.variants",),
    ("opgen.emit", "opgen.workers"),
    ("opgen",),
    ("adopt", "opgen.tune", "report"),
    ("cli",),
)
"""From the ground up: a room imports what lies on floors below its own. Rooms on one floor know nothing of each other."""

FACES = ("", "__main__", "language.hopper", "triton")
"""Modules and rooms that only hand on names, for authors of kernels and, in kernelpack.triton, for code written for Triton. A face may
import anything. Only faces, users and tests import a face."""

UPWARD = {
    ("backends.installed", "backends.amd"): "finds the backends of this installation when one is asked for",
    ("backends.installed", "backends.cpu"): "finds the backends of this installation when one is asked for",
    ("backends.installed", "backends.cuda"): "finds the backends of this installation when one is asked for",
    ("backends.installed", "backends.cpu.device"): "finds the drivers of this installation without what compiles",
    ("backends.installed", "backends.cuda.device"): "finds the drivers of this installation without what compiles",
    ("kernel", "runtime"): "kernel[grid](...) launches; compiling offline launches nothing",
    ("language", "runtime"): "target_info asks which device is active",
    ("runtime", "simt"): "KERNELPACK_EMULATE=1 replaces the driver",
}
"""Rooms that import one on a higher floor, when a function is called, and what for."""

NOT_YET: dict[tuple[str, str], str] = {}
"""Modules that rooms import against the rule. This table only shrinks."""


@dataclass(frozen=True)
class Import:
    """One import of a module of kernelpack. `late` ones run when a function is called; those for type checkers never do."""

    importer: str
    imported: str
    line: int
    late: bool
    for_types: bool


def modules(root: Path) -> dict[str, Path]:
    """Returns the files of a kernelpack folder by their names, without `kernelpack.`."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[0] != "library":
            found[".".join(parts).removesuffix("__init__").rstrip(".") if parts[-1] == "__init__" else ".".join(parts)] = path
    return found


def room_of(module: str) -> str:
    """Returns the room that a module belongs to: the longest one that its name begins with."""
    rooms = [room for floor in FLOORS for room in floor if module == room or module.startswith(room + ".")]
    return max(rooms, key=len, default="")


def floor_of(room: str) -> int:
    """Returns the number of a room's floor."""
    return next(number for number, floor in enumerate(FLOORS) if room in floor)


def is_face(module: str) -> bool:
    """Whether a module only hands on names."""
    return any(module == face or (face == "triton" and module.startswith("triton.")) for face in FACES)


def may_import(importer: str, imported: str) -> bool:
    """Whether the house allows one module to import another when it is imported itself."""
    if is_face(importer):
        return True
    if is_face(imported):
        return False
    above, below = room_of(importer), room_of(imported)
    return above == below or floor_of(below) < floor_of(above)


def imports(root: Path) -> Iterator[Import]:
    """Yields every import of one module of kernelpack by another."""
    known = modules(root)
    for name, path in known.items():
        yield from _imports(name, ast.parse(path.read_text()), known, late=False, for_types=False)


def _imports(importer: str, tree: ast.AST, known: dict[str, Path], *, late: bool, for_types: bool) -> Iterator[Import]:
    for node in ast.iter_child_nodes(tree):
        inside = late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        types = for_types or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        for imported in _imported(node, known):
            yield Import(importer, imported, getattr(node, "lineno", 0), late or _is_entry_point(node), for_types)
        yield from _imports(importer, node, known, late=inside, for_types=types)


def _is_entry_point(node: ast.AST) -> bool:
    """Whether a node names a module that is imported when somebody loads it."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "EntryPoint"


def _imported(node: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """Yields the modules of kernelpack that a statement imports, and those that calls of import_module and EntryPoint
    name."""
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kernelpack" and node.module is not None:
        home = node.module.removeprefix("kernelpack").lstrip(".")
        for alias in node.names:
            inner = f"{home}.{alias.name}".lstrip(".")
            yield inner if inner in known or inner == "_C" else home
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name.split(".")[0] == "kernelpack":
                yield alias.name.removeprefix("kernelpack").lstrip(".")
    elif isinstance(node, ast.Call) and _is_entry_point(node):
        yield str(ast.literal_eval(node.args[1])).partition(":")[0].removeprefix("kernelpack.")
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
        name = node.args[0]
        if isinstance(name, ast.Constant) and str(name.value).startswith("kernelpack."):
            yield str(name.value).removeprefix("kernelpack.")
