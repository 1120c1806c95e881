"""Finds every name that packages take from Triton, by reading their source, and keeps them in docs/triton_names.json.

Run: python -m docs.triton_names WHEEL... --triton DIR; then make readme. DIR holds the version of Triton that kernelpack stands in for
(`pip install --no-deps --target DIR triton==3.6.0`): names that it does not have either are kept apart. Nothing of a wheel is run.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelpack.errors import RefusedNameError

ROOT = Path(__file__).parents[1]
OURS, GLUON = "kernelpack.triton", "triton.experimental"
RECORD = ROOT / "docs" / "triton_names.json"
HANDED_ON = {"triton": "triton", "tl": "triton.language", "tldevice": "triton.language.extra.libdevice"}
"""What packages hand on from modules of their own under these names, e.g. `from vllm.triton_utils import tl`."""
IN_TEXT = re.compile(r"\b(tl|libdevice)((?:\.[a-zA-Z_]\w*)+)")
TEXT_HOMES = {"tl": "triton.language", "libdevice": "triton.language.extra.libdevice"}
GENERATES_KERNELS = "torch/_inductor/"
"""Files that write kernels: their texts are read, too."""


# -- reading packages -------------------------------------------------------------------------------------------------------


def names_of(source: str, generates: bool = False) -> set[str]:
    """Returns the dotted names of Triton's that a Python file uses: what it imports, and attributes of what it imported."""
    tree = ast.parse(source)
    bound: dict[str, str] = {}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_triton(alias.name):
                    found.add(alias.name)
                    bound[alias.asname or "triton"] = alias.name if alias.asname else "triton"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if not node.level and node.module is not None and _is_triton(node.module):
                    if alias.name != "*":
                        found.add(f"{node.module}.{alias.name}")
                        bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                elif alias.name in HANDED_ON and not _is_other(node):
                    bound[alias.asname or alias.name] = HANDED_ON[alias.name]
    found |= {name for node in ast.walk(tree) for name in _chain(node, bound)}
    if generates:
        texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
        found |= {TEXT_HOMES[root] + rest for text in texts for root, rest in IN_TEXT.findall(text)}
    return found


def _is_triton(module: str) -> bool:
    return module.partition(".")[0] == "triton"


def _is_other(node: ast.ImportFrom) -> bool:
    """Whether a module hands on things of these names that are not Triton's: torch's configurations have groups named `triton`."""
    return "config" in (node.module or "") or (node.module or "").startswith(("torch._inductor.kernel", "torch._library"))


def _chain(node: ast.AST, bound: dict[str, str]) -> Iterator[str]:
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if names and isinstance(node, ast.Name) and node.id in bound:
        yield ".".join([bound[node.id], *reversed(names)])


def names_in_wheel(wheel: Path, only: str = "") -> set[str]:
    """Returns the names that the Python files of a wheel use; `only` is where those files begin."""
    found: set[str] = set()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".py") and name.startswith(only):
                text = archive.read(name).decode("utf-8", "replace")
                if "triton" in text or "tl." in text:
                    try:
                        found |= names_of(text, name.startswith(GENERATES_KERNELS))
                    except SyntaxError:  # a template
                        continue
    return found


# -- asking an implementation -----------------------------------------------------------------------------------------------


def ends_at(name: str, root: str) -> str | None:
    """Returns the part of a name that an implementation of Triton has to know, or None if it knows it: modules are followed, and one
    name of what they hold. What objects have beyond that, programs of this kind find out when they run.

    Raises RefusedNameError for a name that is refused.
    """
    place: Any = import_module(root)
    known = "triton"
    for part in name.split(".")[1:]:
        known = f"{known}.{part}"
        if hasattr(place, part):  # a module's own __getattr__ may refuse it
            place = getattr(place, part)
        elif not isinstance(place, ModuleType):
            return known
        else:
            try:
                place = import_module(f"{root}{known[len('triton') :]}")
            except RefusedNameError:
                raise
            except ImportError:
                return known
        if not isinstance(place, ModuleType):
            return None
    return None


def answers(names: Iterable[str], root: str) -> dict[str, str]:
    """Returns what an implementation says of each name: `has`, `refused`, or `none` of the part that it does not know.

    Names of Gluon count as refused: kernels can be defined with them, and are refused when they are launched.
    """
    said = {}
    for name in names:
        if root == OURS and name.startswith(GLUON):
            said[name] = "refused"
            continue
        try:
            missing = ends_at(name, root)
        except RefusedNameError:
            said[name] = "refused"
        else:
            said[name] = f"none {missing}" if missing else "has"
    return said


def _answers_of_triton(names: list[str], folder: Path) -> dict[str, str]:
    code = "import json, sys; from docs.triton_names import answers; print(json.dumps(answers(json.load(sys.stdin), 'triton')))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, input=json.dumps(names), capture_output=True, text=True, check=True, env=environment)
    result: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def scan(wheels: Iterable[Path], triton: Path) -> dict[str, Any]:
    """Returns the record: by package, the names that it uses and Triton has; and apart, those that Triton has not."""
    used = {}
    for wheel in wheels:
        package, version = wheel.name.split("-")[:2]
        used[f"{package} {version.partition('+')[0]}"] = names_in_wheel(wheel, GENERATES_KERNELS if package == "torch" else "")
    said = _answers_of_triton(sorted(set().union(*used.values())), triton)
    return {
        "packages": {package: sorted(name for name in names if said[name] == "has") for package, names in sorted(used.items())},
        "not in Triton": sorted({answer.partition(" ")[2] for answer in said.values() if answer != "has"}),
    }


# -- what the page says -----------------------------------------------------------------------------------------------------


def table_rows(record: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns the head and the rows of the table: a row for each package."""
    rows = []
    for package, names in record["packages"].items():
        counts = Counter(answer.partition(" ")[0] for answer in answers(names, OURS).values())
        rows.append((package, str(len(names)), str(counts["has"]), str(counts["refused"])))
    return ("package", "names of Triton 3.6", "exist", "refused by name"), rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--triton", type=Path, required=True, help="where the Triton lies that kernelpack stands in for")
    arguments = parser.parse_args()
    record = scan(arguments.wheels, arguments.triton)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    names = sorted(set().union(*record["packages"].values()))
    for name, answer in answers(names, OURS).items():
        if answer not in ("has", "refused"):
            print(name, answer)


if __name__ == "__main__":
    main()
