"""A backend of a third party: a stage and an argument fact of its own, the CPU backend's code, a launcher in C++."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelpack.backends.base import CSRC, ArgumentProperty, Backend, Device, Lowered, Options, Stage, Tool
from kernelpack.backends.cpu import CPUBackend
from kernelpack.compiler import CompiledKernel
from kernelpack.errors import TargetError
from kernelpack.ir.core import Builder, Operation, entry_function
from kernelpack.target import Target

HERE = Path(__file__).parent / "csrc"
HOST = Target.parse("cpu:x86-64-v3")


class ToyBackend(Backend):
    """Serves CPU tensors with programs that run last one first."""

    name = "toy"
    image_kind = "object"
    dispatch_key = "CPU"
    machine_code = "asm"
    launcher = "toy::launcher"
    launcher_header = HERE / "toy_launcher.h"
    launcher_sources: Sequence[Path] = (HERE / "toy_launcher.cpp", CSRC / "kernels" / "cpu.cpp")

    def __init__(self) -> None:
        self.cpu = CPUBackend()

    def resolve_target(self, target: Target) -> Target:
        if str(target) != "toy:one":
            raise TargetError(f"{target} is no toy", cure="use toy:one")
        return target

    def stages(self, target: Target, options: Options) -> dict[str, Stage]:
        def on_host(stage: Stage) -> Stage:
            return lambda value, lowered: stage(value, replace(lowered, target=HOST))

        own: dict[str, Stage] = {"parity": fold_parity}
        return own | {name: on_host(stage) for name, stage in self.cpu.stages(HOST, options).items()}

    def properties(self) -> Sequence[ArgumentProperty]:
        return (
            ArgumentProperty(
                name="toy.even",
                value=2,
                guard="{arg} % {value} == 0",
                holds=lambda value: value % 2 == 0,
                applies=lambda kind: kind in ("i32", "i64"),
            ),
        )

    def targets(self) -> Sequence[Target]:
        return (Target("toy", "one"),)

    def tools(self) -> Sequence[Tool]:
        return (Tool("toy assembler", "1.0", True, "no toy compiles", "buy one"),)

    def devices(self) -> Sequence[Device]:
        return (Device("a toy", (Target("toy", "one"),)),)

    def disassemble(self, kernel: CompiledKernel) -> str:
        return self.cpu.disassemble(replace(kernel, target=HOST))

    def supports(self, op: Operation, target: Target) -> str | None:
        if op.name == "tt.dot":
            return "toys do not multiply matrices"
        return self.cpu.supports(op, HOST)

    def tool_versions(self) -> Mapping[str, str]:
        return {"toy": "1.0", **self.cpu.tool_versions()}


def fold_parity(module: Operation, lowered: Lowered) -> Operation:
    """The remainder by 2 of an argument that is known to be even is 0."""
    copy = module.clone()
    function = entry_function(copy)
    facts: Sequence[Mapping[str, Any]] = function.attributes.get("arg_attrs") or [{}] * len(function.body.arguments)
    even = {argument for argument, known in zip(function.body.arguments, facts, strict=True) if "toy.even" in known}
    lowered.metadata["folded"] = 0
    for op in list(copy.walk()):
        if op.name == "arith.remsi" and op.operands[0] in even and is_constant(op.operands[1].defining_op, 2):
            op.replace_with(Builder.before(op).constant(0, op.result.type))
            lowered.metadata["folded"] += 1
    return copy


def is_constant(op: Operation | None, value: int) -> bool:
    return op is not None and op.name == "arith.constant" and op.attributes["value"] == value
