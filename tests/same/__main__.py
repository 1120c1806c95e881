"""Records what this checkout and a commit compile, each once, and says what differs: `python -m tests.same REF [--room ROOM]`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.same.compare import differences, records

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "same"
OPS = """
import tests.same.recorder, sys
from kernelpack.cli import main
sys.exit(main(sys.argv[1:]))
"""


def record(checkout: Path, folder: Path, room: str, jobs: int) -> None:
    """Runs the tests of a room of a checkout, and for all rooms the build of ops, and leaves their records in the folder."""
    python = checkout / ".venv" / "bin" / "python"
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {
            "SAME_RECORDS": str(folder),
            "PYTHONPATH": str(checkout),
            "KERNELPACK_CACHE_DIR": f"{scratch}/cache",
            "HYPOTHESIS_STORAGE_DIRECTORY": f"{scratch}/hypothesis",
        }
        tests = [python, "-m", "pytest", "-p", "tests.same.recorder", "-n", str(jobs), "-m", "not slow", f"tests/{room}"]
        build = [python, "-c", OPS, "build", "ops", "--namespace", "kernelpack", "--out", f"{scratch}/library", "-j", str(jobs)]
        for target in ("cpu:x86-64-v3", "cuda:sm_80", "cuda:sm_90a"):  # each kernel is lowered for the others too
            build += ["--target", target]
        failed = [
            name
            for name, command in [("tests", tests), ("the build of ops", build if room == "." else None)]
            if command is not None and subprocess.run(command, cwd=checkout, env=environment).returncode
        ]
    if failed:
        print(f"{checkout}: {' and '.join(failed)} failed; what they would have compiled counts as missing", file=sys.stderr)


def kept_records(commit: str, room: str, jobs: int) -> Path:
    """Returns the records of a commit, made in a checkout of its own the first time: always in the same folder, as assertions name
    files."""
    folder = KEPT / commit / room
    if not folder.is_dir():
        checkout, unfinished = KEPT / "checkout", KEPT / "unfinished"
        _git("worktree", "add", "--force", "--detach", str(checkout), commit)
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            (checkout / ".venv").symlink_to(ROOT / ".venv")
            subprocess.run(["make", "build", f"JOBS={jobs}"], cwd=checkout, check=True)
            record(checkout, unfinished, room, jobs)
        finally:
            _git("worktree", "remove", "--force", str(checkout))
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished.rename(folder)
    return folder


def working_tree() -> str:
    """Returns a commit that holds what lies in this checkout. Raises SystemExit where git does not know of a file."""
    unknown = _git("ls-files", "--others", "--exclude-standard")
    if unknown:
        raise SystemExit(f"to fix: git add {' '.join(unknown.split())}, which git does not know of")
    return _git("stash", "create") or _git("rev-parse", "HEAD")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.same", description=__doc__)
    parser.add_argument("ref", help="the commit to compare with")
    parser.add_argument("--room", default=".", help="a folder of tests/: only what its tests compile (default: all, and ops)")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="how many processes compile")
    arguments = parser.parse_args()
    commit = _git("rev-parse", "--verify", arguments.ref + "^{commit}")
    before, after = (records(kept_records(one, arguments.room, arguments.jobs)) for one in (commit, working_tree()))
    found = differences(before, after)
    print(*found, sep="\n")
    compared = len(before.keys() & after.keys())
    if not compared:
        print(f"nothing was compared: no kernel of {arguments.room} was compiled here and at {commit[:8]}", file=sys.stderr)
        return 1
    print(f"{compared} kernels and files of {commit[:8]} compared: {len(found) or 'no'} differences")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
