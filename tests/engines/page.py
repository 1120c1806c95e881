"""Runs an engine's kernels against torch, in its environment, and writes the table of its page, docs/ENGINE.md.

python -m tests.engines.page packages    makes the environment where there is none
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.engines.environment import ROOT, Environment, python
from tests.engines.packages.environment import PACKAGES
from tests.engines.vllm.environment import VLLM, variables

ENGINES: dict[str, tuple[Environment, str, Callable[[Path], dict[str, str]]]] = {
    "packages": (PACKAGES, "tests.engines.packages.checks", PACKAGES.variables),
    "vllm": (VLLM, "tests.engines.vllm.kernels", lambda folder: variables(folder, "v2") | {"VLLM_LOGGING_LEVEL": "ERROR"}),
}
"""The environment of each, the module that runs its cases, and what that finds in its environment."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--folder", type=Path, help="where the environment lies (build/ENGINE)")
    parser.add_argument("words", nargs="*", help="runs only cases whose names hold one of these, and leaves the page as it is")
    args = parser.parse_args()
    environment, module, variables_in = ENGINES[args.engine]
    folder = args.folder or environment.folder
    environment.set_up(folder)
    command = [python(folder), "-m", module, *args.words]
    if not args.words:
        command += ["--page", str(ROOT / "docs" / f"{environment.name}.md")]
    sys.exit(subprocess.run(command, cwd=ROOT, env=variables_in(folder)).returncode)


if __name__ == "__main__":
    main()
