"""Runs the packages' kernels against torch, and writes the table of docs/packages.md: python -m tests.engines.packages.page"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.engines.packages.environment import FOLDER, ROOT, python, set_up, variables

PAGE = ROOT / "docs" / "packages.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the environment lies (build/packages)")
    parser.add_argument("words", nargs="*", help="runs only checks whose names hold one of these, and leaves the page as it is")
    args = parser.parse_args()
    set_up(args.folder)
    command = [python(args.folder), "-m", "tests.engines.packages.checks", *args.words]
    if not args.words:
        command += ["--page", str(PAGE)]
    sys.exit(subprocess.run(command, cwd=ROOT, env=variables(args.folder)).returncode)


if __name__ == "__main__":
    main()
