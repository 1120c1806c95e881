"""The command line: kernelpack new | build | unbox | wheel | sign | hub | inspect | report | opt | coverage | verify | tune | trace | adopt | cache | doctor. A verb is one module with `PURPOSE`, `add_arguments`, `run`.

Exit codes: 0 done, 1 it failed or something differs, 2 the command was written wrongly, 130 interrupted.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from kernelpack.cli.terminal import Style
from kernelpack.errors import BuildError, CompilationError, KernelpackError
from kernelpack.nearest import did_you_mean
from kernelpack.version import VERSION

VERBS = (
    "new", "build", "unbox", "wheel", "sign", "hub", "inspect", "report", "opt", "coverage", "verify", "tune", "trace", "adopt", "cache", "doctor",
)  # fmt: skip
BUILD_PACKAGES = ("llvmlite", "numpy", "torch")
"""What verbs import beside the standard library; an installation that only serves may lack them."""


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser that reports mistakes as every other error is reported."""

    def error(self, message: str) -> NoReturn:
        print(_block(self.prog, message, f"{self.prog} --help"), file=sys.stderr)
        sys.exit(2)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line (default: this process's) and returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be text
    parser = _Parser(
        prog="kernelpack",
        description="Builds op libraries from kernels in the Triton language, and looks into them.",
        epilog="kernelpack VERB --help lists the options of a verb. kernelpack doctor says what works on this machine.",
    )
    parser.add_argument("--version", action="version", version=f"kernelpack {VERSION}")
    folder = Path(__file__).parents[1] / "cmake"
    parser.add_argument(
        "--cmake-dir", action="version", version=str(folder), help="print the folder for find_package(kernelpack)"
    )
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs: dict[str, Any] = {}
    for name in VERBS:
        verbs[name] = import_module(f"kernelpack.cli.{name}")
        purpose = verbs[name].PURPOSE
        sub = subparsers.add_parser(name, help=purpose, description=purpose[0].upper() + purpose[1:] + ".")
        verbs[name].add_arguments(sub)
        sub.add_argument("--json", action="store_true", help="print the result as JSON")
    if not words:
        parser.exit(2, parser.format_help())
    if not words[0].startswith("-") and words[0] not in VERBS:
        parser.error(f"there is no verb {words[0]!r}{did_you_mean(words[0], VERBS)}")
    arguments = parser.parse_args(words)
    try:
        code = _run(verbs[arguments.verb], arguments)
        sys.stdout.flush()
        return code
    except KernelpackError as error:
        if arguments.json:
            print(json.dumps({"error": _error_record(error)}, indent=1))
        else:
            print(_block(f"kernelpack {arguments.verb}", str(error)), file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader, e.g. head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130


def _run(verb: Any, arguments: argparse.Namespace) -> int:
    try:
        code: int = verb.run(arguments)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in BUILD_PACKAGES:
            raise
        raise BuildError(f"{package} is not installed", cure="pip install 'kernelpack[build]'") from None
    except OSError as error:
        if error.filename is None:  # of a pipe
            raise
        raise BuildError(f"{error.filename}: {error.strerror}", cure="name a place that can be read and written") from None
    return code


def _block(who: str, message: str, see: str | None = None) -> str:
    style = Style(sys.stderr)
    message = message.replace("\n  to fix: ", f"\n  {style.bold('to fix:')} ")
    return f"{who}: {style.red('error:')} {message}" + (f"\n  {style.bold('to fix:')} see {see}" if see else "")


def _error_record(error: KernelpackError) -> dict[str, Any]:
    record: dict[str, Any] = {
        "kind": type(error).__name__,
        "message": error.message,
        "location": asdict(error.location) if error.location else None,
        "cure": error.cure,
    }
    if isinstance(error, CompilationError):
        record["call_sites"] = [asdict(site) for site in error.call_sites]
    return record
