"""kernelpack opt: passes over the text of a module, as mlir-opt runs them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelpack.cli.targets import add_target_argument, parse_targets
from kernelpack.errors import BuildError
from kernelpack.nearest import did_you_mean

if TYPE_CHECKING:
    from kernelpack.ir.core import Operation
    from kernelpack.passes.pipeline import Nest, Pass, Pipeline

PURPOSE = "run passes over a module's text (ttir, ttgir), and print it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="a module as text; - reads standard input")
    add_target_argument(parser, required=False, several=False, default=" (default: cpu:native)")
    parser.add_argument(
        "--passes", metavar="A,B,C", help="run these passes or pipelines, in this order (default: all pipelines of the target)"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=N",
        help="an option of the kernel, such as num_warps=8; give it again for several",
    )
    parser.add_argument(
        "--list", action="store_true", help="read no FILE: print the target's pipelines, and what each pass needs before it"
    )
    parser.add_argument("--print-before-all", action="store_true", help="print the module before each pass to standard error")
    parser.add_argument("--print-after-all", action="store_true", help="print the module after each pass to standard error")
    parser.add_argument("--time", action="store_true", help="print the milliseconds of each pass to standard error")


def run(arguments: argparse.Namespace) -> int:
    from kernelpack.backends.installed import backend_of
    from kernelpack.compiler.stages import legalise
    from kernelpack.ir.core import entry_function
    from kernelpack.ir.text import parse_module
    from kernelpack.ir.verify import verify
    from kernelpack.passes import TTIR
    from kernelpack.passes.pipeline import Verifying, run_part

    targets = parse_targets(arguments.target or ["cpu:native"])
    if len(targets) != 1:
        raise BuildError("passes run for one target at a time", cure=f"write --target {targets[0]}")
    backend = backend_of(targets[0])
    target, options = backend.resolve_target(targets[0]), _options(arguments.option)
    pipelines = _pipelines(backend.stages(target, options))
    if arguments.list:
        _print_list(pipelines, arguments.json)
        return 0
    module = parse_module(_read(arguments.file), str(arguments.file))
    verify(module)
    seen = _Seen(arguments.print_before_all, arguments.print_after_all)
    entry = entry_function(module).attributes["sym_name"]
    context = backend.context(target, options, entry, backend.attempts(target, options)[0], (Verifying(), seen))
    if arguments.passes is None:
        TTIR.run(module, hooks=context.hooks)
        legalise(module, backend, target)
    for part in _chosen(pipelines, arguments.passes):
        try:
            run_part(part, module, context, context.hooks)
        except (AssertionError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as problem:
            raise BuildError(
                f"pass {seen.running} cannot take this module: {type(problem).__name__}: {problem}",
                cure="run those before it that its pipeline has: kernelpack opt --list names them",
            ) from problem
    if arguments.json:
        print(json.dumps({"module": str(module), "milliseconds": seen.milliseconds}, indent=1))
        return 0
    sys.stdout.write(str(module))
    if arguments.time:
        for name, milliseconds in seen.milliseconds:
            print(f"{milliseconds:9.3f} ms  {name}", file=sys.stderr)
    return 0


class _Seen:
    """A hook that keeps how long passes took, and prints what they are given and make."""

    def __init__(self, before: bool, after: bool) -> None:
        self.printed = {"before": before, "after": after}
        self.milliseconds: list[tuple[str, float]] = []
        self.running = ""

    def before(self, name: str, operation: Operation) -> None:
        self.running = name
        self._print("before", name, operation)

    def after(self, name: str, operation: Operation, seconds: float) -> None:
        self.milliseconds.append((name, round(1e3 * seconds, 3)))
        self._print("after", name, operation)

    def _print(self, when: str, name: str, operation: Operation) -> None:
        if self.printed[when]:
            module = next(operation.ancestors(), operation)
            sys.stderr.write(f"// {when} {name}\n{module}")


def _read(file: Path | None) -> str:
    if file is None:
        raise BuildError("no FILE is given", cure="name a file with a module as text, or - for standard input")
    if str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise BuildError(f"{file} cannot be read: {problem}", cure="name a file with a module as text, or -") from None


def _options(given: Iterable[str]) -> Any:
    from kernelpack.options import OPTION_NAMES, Options

    values: dict[str, Any] = {}
    for text in given:
        name, equal, number = text.partition("=")
        if name not in OPTION_NAMES:
            raise BuildError(f"--option {text}: there is no option {name!r}{did_you_mean(name, OPTION_NAMES)}")
        if not equal or not number.isdecimal() or len(number) > 9:
            raise BuildError(f"--option {text}: expected a number", cure=f"write for example {name}=4")
        values[name] = int(number)
    return Options(**values)


def _pipelines(stages: Mapping[str, Any]) -> list[Pipeline]:
    """Returns the pipelines of a target: ttir, and those stages of the backend that rewrite IR."""
    from kernelpack.passes import TTIR
    from kernelpack.passes.pipeline import Pipeline

    return [TTIR, *(stage for stage in stages.values() if isinstance(stage, Pipeline))]


def _chosen(pipelines: Sequence[Pipeline], names: str | None) -> list[Pass | Nest]:
    """Returns what --passes names: passes, or whole pipelines; without it, the backend's pipelines. Raises BuildError, with the nearest
    name, for what the target does not have."""
    if names is None:
        return [part for pipeline in pipelines[1:] for part in pipeline.parts]
    known: dict[str, Sequence[Pass | Nest]] = {}
    for pipeline in reversed(pipelines):
        known |= {step.name: (pipeline.part(step.name),) for step in pipeline.passes()}
    known |= {pipeline.name: pipeline.parts for pipeline in pipelines}
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise BuildError(f"there is no pass {name!r}{did_you_mean(name, known)}", cure="kernelpack opt --list names them")
    return [part for name in wanted for part in known[name]]


def _print_list(pipelines: Sequence[Pipeline], as_json: bool) -> None:
    if as_json:
        rows = {pipeline.name: {step.name: list(step.after) for step in pipeline.passes()} for pipeline in pipelines}
        print(json.dumps(rows, indent=1))
        return
    for pipeline in pipelines:
        print(pipeline.name)
        longest = max(len(step.name) for step in pipeline.passes())
        for step in pipeline.passes():
            print(f"  {step.name:{longest}}  {'after ' + ', '.join(step.after) if step.after else ''}".rstrip())
