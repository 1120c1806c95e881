"""Pipelines: an order that breaks what a pass needs is refused by name, and one driver runs, checks and times the passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelpack.backends.cpu.stages import CPU_TTIR
from kernelpack.backends.cuda.ttir_to_ttgir import TTGIR
from kernelpack.context import Context
from kernelpack.errors import VerifyError
from kernelpack.ir.core import Builder, Operation
from kernelpack.ir.text import parse_module
from kernelpack.ir.types import I32
from kernelpack.options import Options
from kernelpack.passes import TTIR
from kernelpack.passes.pipeline import Nest, Pass, Pipeline, Verifying
from kernelpack.target import Target

TEXT = """
tt.func public @kernel(%x: i32) {
  tt.call @inner(%x) : (i32) -> ()
  tt.return
}
tt.func private @inner(%x: i32) {
  tt.return
}
"""


def nothing(operation: Operation, context: object) -> None:
    pass


class Seen:
    """A hook that lists what it sees."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def before(self, name: str, operation: Operation) -> None:
        self.events.append(("before", name, operation.attributes.get("sym_name", "module")))

    def after(self, name: str, operation: Operation, seconds: float) -> None:
        assert seconds >= 0
        self.events.append(("after", name, operation.attributes.get("sym_name", "module")))


def test_a_pass_that_stands_before_what_it_needs_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="pipeline p: second needs first before it, which comes after it"):
        Pipeline("p", (Pass("second", nothing, after=("first",)), Pass("first", nothing)))
    with pytest.raises(ValueError, match="pipeline p: second needs first before it, which is no pass of it"):
        Pipeline("p", (Pass("second", nothing, after=("first",)),))
    with pytest.raises(ValueError, match="pipeline p: two passes are called first"):
        Pipeline("p", (Pass("first", nothing), Nest((Pass("first", nothing),))))


@pytest.mark.parametrize("pipeline", [TTIR, CPU_TTIR, TTGIR], ids=lambda pipeline: pipeline.name)
def test_swapping_a_pass_with_one_that_it_needs_is_refused(pipeline: Pipeline) -> None:
    names = [step.name for step in pipeline.passes()]
    pairs = [(earlier, step.name) for step in pipeline.passes() for earlier in step.after]
    assert len(pairs) >= len(names) // 2
    for earlier, later in pairs:
        with pytest.raises(ValueError, match=f"pipeline {pipeline.name}: .* needs .* before it, which comes after it"):
            Pipeline(pipeline.name, swapped(pipeline, earlier, later))


def swapped(pipeline: Pipeline, one: str, other: str) -> tuple[Pass | Nest, ...]:
    """Returns the parts of a pipeline with two passes in each other's place."""
    by_name = {step.name: step for step in pipeline.passes()}
    place = {one: by_name[other], other: by_name[one]}
    return tuple(
        Nest(tuple(place.get(step.name, step) for step in part.passes))
        if isinstance(part, Nest)
        else place.get(part.name, part)
        for part in pipeline.parts
    )


def test_deciding_on_loops_before_they_are_rotated_is_refused() -> None:
    with pytest.raises(ValueError, match="schedule needs rotate_products before it"):
        Pipeline("ttgir", swapped(TTGIR, "rotate_products", "schedule"))


def test_nests_take_one_function_after_the_other_callers_first() -> None:
    seen = Seen()
    nest = Nest((Pass("a", nothing), Pass("b", nothing, when=lambda op, context: op.attributes["sym_name"] == "inner")))
    Pipeline("p", (Pass("m", nothing), nest)).run(parse_module(TEXT), hooks=[seen])
    done = [(name, where) for when, name, where in seen.events if when == "after"]
    assert done == [("m", "module"), ("a", "kernel"), ("a", "inner"), ("b", "inner")]
    assert len(seen.events) == 2 * len(done)


def test_the_pass_that_breaks_the_ir_is_named() -> None:
    def broken(module: Operation, context: object) -> None:
        kernel = module.body.operations[0]
        Builder.before(kernel.body.terminator).create("arith.addi", [kernel.body.arguments[0]] * 2, {}, [I32])
        kernel.body.arguments[0].type = replace(I32, width=64)

    with pytest.raises(VerifyError) as raised:
        Pipeline("p", (Pass("good", nothing), Pass("bad", broken))).run(parse_module(TEXT), hooks=[Verifying()])
    assert raised.value.__notes__ == ["after pass bad"]


def test_a_stage_leaves_its_input_as_it_is() -> None:
    module = parse_module(TEXT)
    before = str(module)
    context = Context(Target.parse("cpu:x86-64-v3"), Options(), "kernel")
    assert "tt.call" not in str(CPU_TTIR(module, context))
    assert str(module) == before


def test_one_pass_of_a_pipeline_runs_alone() -> None:
    assert isinstance(TTGIR.part("place_shared"), Pass)
    alone = TTGIR.part("fence_proxies")
    assert isinstance(alone, Nest)
    assert [step.name for step in alone.passes] == ["fence_proxies"]
    with pytest.raises(KeyError):
        TTGIR.part("no such")
