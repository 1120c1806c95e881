"""Whatever a program does, no two accesses that race have a path between them without a barrier; and no barrier is for nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from kernelpack.backends.gpu.passes.place_shared import place_shared
from kernelpack.ir.core import Block, Operation, find_function, functions
from tests.analysis.ttgir import function, gpu

BUFFERS = ("a", "b")


@dataclass(frozen=True)
class Access:
    """W(rite) or R(ead) of a buffer, or a call of @g."""

    kind: str
    buffer: str

    def text(self, fresh: Iterator[int]) -> str:
        if self.kind == "W":
            return f"ttg.local_store %x, %{self.buffer} : $T -> $M\n"
        if self.kind == "R":
            return f"%v{next(fresh)} = ttg.local_load %{self.buffer} : $M -> $T\n"
        return "tt.call @g(%x) : ($T) -> ()\n"


@dataclass(frozen=True)
class Nested:
    """An if with an else, or a loop."""

    kind: str
    bodies: tuple[tuple[object, ...], ...]

    def text(self, fresh: Iterator[int]) -> str:
        inner = ["".join(part.text(fresh) for part in body) for body in self.bodies]
        if self.kind == "if":
            return f"scf.if %c {{\n{inner[0]}}} else {{\n{inner[1]}}}\n"
        return f"scf.for %i{next(fresh)} = %z to %n step %n  : i32 {{\n{inner[0]}}}\n"


accesses = st.builds(Access, st.sampled_from("WR"), st.sampled_from(BUFFERS))


def programs(leaves: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    def nest(inner: st.SearchStrategy[tuple[object, ...]]) -> st.SearchStrategy[tuple[object, ...]]:
        ifs = st.builds(lambda yes, no: Nested("if", (yes, no)), inner, inner)
        loops = st.builds(lambda body: Nested("for", (body,)), inner)
        return st.lists(st.one_of(leaves, ifs, loops), max_size=3).map(tuple)

    return st.recursive(st.lists(leaves, max_size=3).map(tuple), nest, max_leaves=5)


def program_text(parts: tuple[object, ...], kept: bool) -> str:
    """With `kept`, buffers live through the whole function; else they may share bytes, with those of a callee too."""
    fresh = itertools.count()
    allocate = "".join(f"%{name} = ttg.local_alloc : () -> $M\n" for name in BUFFERS)
    keep = "".join(f"ttg.local_dealloc %{name} : $M\n" for name in BUFFERS if kept)
    return f"{allocate}%z = arith.constant 0 : i32\n" + "".join(part.text(fresh) for part in parts) + keep


Step = tuple[str, int]
"""What a thread does: W, R or | and the byte at which the buffer begins."""


def paths(block: Block, base: int, module: Operation) -> Iterator[tuple[Step, ...]]:
    """Yields what can happen in a block: every branch, and up to two iterations of loops."""
    choices: list[list[tuple[Step, ...]]] = []
    for op in block.operations:
        if op.name in ("ttg.local_store", "ttg.local_load"):
            buffer = op.operands[-1].defining_op
            assert buffer is not None
            choices.append([(("W" if op.name == "ttg.local_store" else "R", base + buffer.attributes["allocation.offset"]),)])
        elif op.name == "gpu.barrier":
            choices.append([(("|", 0),)])
        elif op.name == "tt.call":
            callee = find_function(module, op.attributes["callee"])
            choices.append(list(paths(callee.body, base + op.attributes.get("allocation.offset", 0), module)))
        elif op.name == "scf.if":
            choices.append([path for region in op.regions for path in paths(region.block, base, module)])
        elif op.name == "scf.for":
            once = list(paths(op.body, base, module))
            choices.append([(), *once, *(one + two for one in once for two in once)])
    for chosen in itertools.islice(itertools.product(*choices), 3000):
        yield tuple(step for part in chosen for step in part)


def has_race(path: tuple[Step, ...]) -> bool:
    """Whether two accesses of one buffer, one of them a write, have no barrier between them."""
    pending: set[Step] = set()
    for kind, place in path:
        if kind == "|":
            pending.clear()
        elif ("W", place) in pending or (kind == "W" and ("R", place) in pending):
            return True
        else:
            pending.add((kind, place))
    return False


def placed(parts: tuple[object, ...], kept: bool, callee: tuple[object, ...] | None = None) -> Operation:
    kernel = function(program_text(parts, kept), None if callee is None else program_text(callee, True))
    module = kernel.parent_op
    assert module is not None
    place_shared(module, gpu())
    return module


@settings(max_examples=60, deadline=None)
@given(programs(accesses), st.booleans())
def test_every_path_is_free_of_races(parts: tuple[object, ...], kept: bool) -> None:
    module = placed(parts, kept)
    (kernel,) = functions(module)
    assert not any(map(has_race, paths(kernel.body, 0, module)))


@settings(max_examples=60, deadline=None)
@given(programs(st.one_of(accesses, st.just(Access("C", "")))), st.booleans(), programs(accesses))
def test_every_path_through_calls_is_free_of_races(parts: tuple[object, ...], kept: bool, callee: tuple[object, ...]) -> None:
    module = placed(parts, kept, callee)
    assert not any(map(has_race, paths(functions(module)[0].body, 0, module)))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(programs(accesses), st.booleans())
def test_every_barrier_is_needed(parts: tuple[object, ...], kept: bool) -> None:
    """Without any one of them, some path races. The programs are the same every time: among others, a barrier that those for a loop's
    next iteration make needless can be found, and stays (see _Inserter.loop)."""
    module = placed(parts, kept)
    (kernel,) = functions(module)
    for barrier in [op for op in kernel.walk() if op.name == "gpu.barrier"]:
        block = barrier.parent
        assert block is not None
        index = block.operations.index(barrier)
        barrier.detach()
        assert any(map(has_race, paths(kernel.body, 0, module))), f"a barrier for nothing in\n{kernel}"
        block.insert(index, barrier)
