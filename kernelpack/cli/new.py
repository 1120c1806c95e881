"""kernelpack new: writes a project to begin with, whose README has every command."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from string import Template

from kernelpack.cli.terminal import Style
from kernelpack.errors import BuildError
from kernelpack.files.whole import write_whole
from kernelpack.version import VERSION

PURPOSE = "write a project to begin with: an op, its reference, tests, a benchmark, CI and a README"
TEMPLATES = Path(__file__).parent / "project"
FILES = {
    "README.md": "README.md.in",
    "requirements.txt": "requirements.txt.in",
    ".gitignore": "gitignore.in",
    ".github/workflows/ci.yml": "ci.yml.in",
    "ops/l2_normalize.py": "op.py.in",
    "tests/test_l2_normalize.py": "test_op.py.in",
    "benchmark.py": "benchmark.py.in",
}
"""The files of a project, and the templates that they are made from."""
COMMANDS = {
    "build": "kernelpack build ops --namespace $namespace --target cpu:x86-64-v3,cuda:sm_90a",
    "verify": "kernelpack verify ops --namespace $namespace --lock ops.lock",
    "wheel": "kernelpack wheel $namespace --version 0.1.0",
}
"""What README and CI say alike."""
_TAKEN = frozenset(("benchmark", "dist", "kernelpack", "ops", "tests", "torch", *sys.stdlib_module_names))
"""Names that a package of a project cannot have: `import NAME` is another module then, or the build is in the way of a folder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the ops become torch.ops.NAME.*, and Python imports them as NAME")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the folder of the project (default: ./NAME)")


def run(arguments: argparse.Namespace) -> int:
    from kernelpack.opgen.build import check_namespace

    name = arguments.name
    check_namespace(name, cure="choose a name such as my_ops")
    if name in _TAKEN:
        raise BuildError(
            f"a project {name!r} is in the way of another module or folder of that name", cure="choose a name such as my_ops"
        )
    folder = Path(name if arguments.out is None else arguments.out)
    texts = project(name)
    _check_free(folder)
    for file, text in texts.items():
        write_whole(folder / file, text.encode())
    if arguments.json:
        print(json.dumps({"directory": str(folder.resolve()), "files": list(texts)}, indent=1))
        return 0
    style = Style(sys.stdout)
    print(f"{style.green('wrote')} {style.bold(str(folder))}\n" + "\n".join(f"  {file}" for file in texts))
    print(
        f"\n{style.dim('its README has the commands; the first are')}\n  cd {folder}\n  {commands(name)['build']}\n  python -m pytest"
    )
    return 0


def commands(namespace: str) -> dict[str, str]:
    """Returns the commands of a project by their names."""
    return {name: Template(text).substitute(namespace=namespace) for name, text in COMMANDS.items()}


def project(namespace: str) -> dict[str, str]:
    """Returns the text of each file of a project."""
    words = {"namespace": namespace, "version": VERSION, **commands(namespace)}
    return {file: Template((TEMPLATES / template).read_text()).substitute(words) for file, template in FILES.items()}


def _check_free(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()) or (folder.is_dir() and any(folder.iterdir())):
        raise BuildError(
            f"{folder} exists, and nothing in it is overwritten", cure="choose another name, or another place: --out DIR"
        )
