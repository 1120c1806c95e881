"""Random host functions mean in C++ what they mean in Python: arithmetic, branches, loops, tuples, None, early returns."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kernelpack.opgen.build import build
from kernelpack.opgen.load import load

HEAD = '''"""Generated."""
import math

import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def kernel(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n), mask=at < n)


def clamp(value, low=-1000, high=1000):
    return min(max(value, low), high)
'''
OPS = 6


class Writer:
    """Writes a random function whose values stay within 64 bits, so that Python and C++ can agree."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.depth = 1
        self.ints = ["a", "b"]
        self.floats = ["f"]
        self.fresh = 0

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def name(self) -> str:
        self.fresh += 1
        return f"v{self.fresh}"

    def integer(self, depth: int = 0) -> str:
        pick = self.random
        if depth > 2 or pick.random() < 0.3:
            return pick.choice([*self.ints, str(pick.randint(-9, 9)), "x.shape[0]", "len(x.shape)", "x.stride(-1)"])
        left, right = self.integer(depth + 1), self.integer(depth + 1)
        return pick.choice([
            f"({left} + {right})", f"({left} - {right})", f"clamp({left}) * clamp({right}, high=99)",
            f"({left} // (abs({right}) % 7 + 1))", f"({left} % {pick.choice([-5, -1, 1, 3, 8])})",
            f"min({left}, {right})", f"max({left}, {right}, 3)", f"abs({left})", f"(-{left})", f"(~{left})",
            f"({left} & {right})", f"({left} | {right})", f"({left} ^ {right})", f"(({left} % 64) << 3)", f"({left} >> 2)",
            f"({left} if {self.condition(depth + 1)} else {right})", f"kp.cdiv({left}, 4)", f"kp.next_power_of_2({left} % 1000)",
            f"int({self.number(depth + 1)})", f"(-3, {left}, {right})[1]", f"({left} % 5) ** 2", f"math.floor({self.number(depth + 1)})",
        ])  # fmt: skip

    def number(self, depth: int = 0) -> str:
        pick = self.random
        if depth > 2 or pick.random() < 0.4:
            return pick.choice([*self.floats, "0.25", "-1.5"])
        left, right = self.number(depth + 1), self.number(depth + 1)
        return pick.choice([
            f"({left} + {right})", f"({left} - {right})", f"(clamp({left}) * clamp({right}))", f"({left} / 4)", f"({left} // 3)", f"({left} % 2.5)",
            f"float({self.integer(depth + 1)} % 1000)", f"min({left}, {right})", f"math.sqrt(abs({left}))", f"({left} if {self.condition(depth + 1)} else {right})",
        ])  # fmt: skip

    def condition(self, depth: int = 0) -> str:
        pick = self.random
        left, right = self.integer(depth + 1), self.integer(depth + 1)
        if depth > 2:
            return f"{left} < {right}"
        other = self.condition(depth + 1)
        return pick.choice([
            f"{left} < {right}", f"{left} <= {right} < 50", f"{left} == {right}", f"({left} > 0 and {other})", f"({left} != 0 or {other})",
            f"not ({other})", f"{left} in (1, {right}, 4)", f"{self.number(depth + 1)} > 0.5", f"bool({left})", "scale is None", "x.is_contiguous()",
        ])  # fmt: skip

    def statements(self, count: int, nested: int) -> None:
        pick = self.random
        for _ in range(count):
            kind = pick.random()
            if kind < 0.35:
                name = pick.choice([*self.ints[2:], self.name()])
                self.emit(f"{name} = clamp({self.integer()}, -10**9, 10**9)")
                self.ints = [*dict.fromkeys([*self.ints, name])]
            elif kind < 0.45:
                name = pick.choice([*self.floats[1:], self.name()])
                self.emit(f"{name} = {self.number()}")
                self.floats = [*dict.fromkeys([*self.floats, name])]
            elif kind < 0.55:
                first, second = self.name(), self.name()
                self.emit(f"{first}, {second} = {self.integer()} % 1000, {self.integer()} % 1000")
                self.emit(f"{first}, {second} = {second}, {first}")
                self.ints += [first, second]
            elif kind < 0.62 and self.ints[2:]:
                self.emit(f"{pick.choice(self.ints[2:])} {pick.choice(['+=', '-=', '^='])} {self.integer()} % 100")
            elif nested and kind < 0.85:
                self.branches(nested)
            elif nested:
                self.loop(nested)

    def branches(self, nested: int) -> None:
        ints, floats = list(self.ints), list(self.floats)
        name, same = self.name(), self.name()
        self.emit(f"if {self.condition()}:")
        for word in ("", "else:"):
            if word:
                self.emit(word)
            self.depth += 1
            self.ints, self.floats = list(ints), list(floats)
            self.statements(self.random.randint(0, 3), nested - 1)
            self.emit(f"{name} = {self.integer()} % 1000")
            self.emit(f"{same} = {self.random.choice([name, '3'])}")
            self.depth -= 1
        self.ints, self.floats = [*ints, name, same], floats

    def loop(self, nested: int) -> None:
        ints, floats = list(self.ints), list(self.floats)
        name, counter = self.name(), self.name()
        self.emit(f"{name} = 0")
        self.emit(f"for {counter} in range({self.random.choice(['3', '1, 8, 2', '5, 0, -1', 'a % 4', 'b % 3, 6'])}):")
        self.depth += 1
        self.ints = [*ints, name, counter]
        self.statements(self.random.randint(0, 2), nested - 1)
        self.emit(f"{name} = ({name} * 3 + {self.integer()}) % 10007")
        self.depth -= 1
        self.ints, self.floats = [*ints, name], floats


def write(seed: int) -> str:
    writer = Writer(seed)
    writer.emit("kernel[(1,)](kp.empty_like(x), 0, BLOCK=16)")
    if seed % 2:
        writer.emit("if scale is None:\n        scale = 0.5")
        writer.floats.append("scale")
    else:
        ways = ["return a, 0, 1.5, a > b", f"late = {writer.integer()} % 1000"]
        if seed % 4:
            ways.reverse()
        writer.emit(f"if {writer.condition()}:\n        {ways[0]}\n    else:\n        {ways[1]}")
        writer.ints.append("late")
    writer.statements(14, 2)
    ints = [writer.integer(1) + " % 10**9" for _ in range(2)]
    writer.emit(f"return {', '.join([*ints, writer.number(), writer.condition()])}")
    body = "\n".join(writer.lines)
    return (
        f'\n\n@kp.op(\n    "op{seed}(Tensor x, int a, int b, float f, float? scale=None) -> (int, int, float, bool)",\n'
        f'    variants={{"x": [tl.float32]}},\n)\ndef op{seed}(x, a, b, f, scale):\n{body}\n'
    )


@pytest.fixture(scope="module")
def random_ops(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModuleType, Path]:
    folder = tmp_path_factory.mktemp("random")
    file = folder / "random_ops.py"
    file.write_text(HEAD + "".join(map(write, range(OPS))))
    spec = importlib.util.spec_from_file_location("random_ops", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    built = build([file], namespace="random_host", targets=["cpu:x86-64-v3"], out=folder / "random_host", jobs=2)
    load(built.directory)
    return module, file


@pytest.mark.parametrize("index", range(OPS))
def test_random_host_function(random_ops: tuple[ModuleType, Path], index: int) -> None:
    module, file = random_ops
    chance = random.Random(index)
    x = torch.ones(5, 16)
    for _ in range(40):
        arguments = (x, chance.randint(-50, 50), chance.choice([0, 1, -1, 7, 10**6]), chance.choice([-7.25, 0.0, 0.75, 3.5]))
        scale = chance.choice([None, 2.5])
        expected = getattr(module, f"op{index}").function(*arguments, scale)
        got = getattr(torch.ops.random_host, f"op{index}")(*arguments, scale=scale)
        assert [type(value) for value in got] == [type(value) for value in expected], (arguments, file)
        assert got[:2] == tuple(expected[:2]), (arguments, scale, file)
        assert got[3] == expected[3]
        assert got[2] == pytest.approx(expected[2], rel=1e-12)
