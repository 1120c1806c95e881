"""Runs vLLM's Triton kernels against torch, and writes what agrees into docs/vllm.md: python -m tests.engines.vllm.kernels_page"""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.engines.vllm.environment import ROOT, folder_argument, python, set_up, variables

PAGE = ROOT / "docs" / "vllm.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    folder_argument(parser)
    parser.add_argument("words", nargs="*", help="runs only cases whose names hold one of these, and leaves the page as it is")
    args = parser.parse_args()
    set_up(args.folder)
    command = [python(args.folder), "-m", "tests.engines.vllm.kernels", *args.words]
    if not args.words:
        command += ["--page", str(PAGE)]
    sys.exit(subprocess.run(command, cwd=ROOT, env=variables(args.folder, "v2") | {"VLLM_LOGGING_LEVEL": "ERROR"}).returncode)


if __name__ == "__main__":
    main()
