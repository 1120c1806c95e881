"""Random programs of branches, loops and early returns compute what Python computes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.frontend.compiling import define, run


class Programs:
    """Makes random functions of three integers in the language's and Python's common part."""

    def __init__(self, seed: int, early_returns: bool) -> None:
        self.random = random.Random(seed)
        self.early_returns = early_returns
        self.counter = 0

    def source(self) -> str:
        body = self.block(0, in_loop=False, size=5)
        return "\n".join(["def f(a, b, c):", "    d = a + b", *body, f"    return {self.value()}"]) + "\n"

    def value(self) -> str:
        atoms = ["a", "b", "c", "d", str(self.random.randint(-9, 9))]
        x, y, z = (self.random.choice(atoms) for _ in range(3))
        return self.random.choice(
            [f"({x} + {y} * 3) & 1023", f"{x} - {y}", f"({x} ^ {y}) + {z} & 255", f"{x} if {y} > {z} else {y}"]
        )

    def condition(self) -> str:
        x, y, z = (self.random.choice("abcd") for _ in range(3))
        number = self.random.randint(-9, 30)
        return self.random.choice(
            [f"{x} > {number}", f"{x} & 3 == 0", f"{x} < {y} and {z} != {number}", f"not {x} > {y} or {z} == 1"]
        )

    def block(self, depth: int, *, in_loop: bool, size: int) -> list[str]:
        indent = "    " * (depth + 1)
        lines: list[str] = []
        for _ in range(self.random.randint(1, size)):
            choice = self.random.random()
            if choice < 0.4 or depth > 3:
                lines.append(f"{indent}{self.random.choice('abcd')} = {self.value()}")
            elif choice < 0.75:
                lines.append(f"{indent}if {self.condition()}:")
                lines += self.block(depth + 1, in_loop=in_loop, size=3)
                if self.random.random() < 0.5:
                    lines.append(f"{indent}else:")
                    lines += self.block(depth + 1, in_loop=in_loop, size=3)
            elif choice < 0.9 and depth < 3:
                lines += self.loop(indent, depth)
            elif self.early_returns and not in_loop and depth:
                lines.append(f"{indent}return {self.value()}")
                break
        return lines or [f"{indent}pass"]

    def loop(self, indent: str, depth: int) -> list[str]:
        self.counter += 1
        name, start, step = f"i{self.counter}", self.random.randint(-3, 3), self.random.choice([1, 2, -1, -3])
        inner = "    " * (depth + 2)
        if self.random.random() < 0.6:
            end = self.random.choice(["a & 7", "5", "-4", "c & 3"])
            head, tail = [f"{indent}for {name} in range({start}, {end}, {step}):"], [f"{inner}d = d + {name}"]
        else:
            head, tail = [f"{indent}{name} = {start}", f"{indent}while {name} < (b & 7):"], [f"{inner}{name} = {name} + 2"]
        return head + self.block(depth + 1, in_loop=True, size=2) + tail


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_compute_what_python_does(seed: int) -> None:
    source = Programs(seed, early_returns=True).source()
    names = define(
        f"@kp.jit\n{source}\n\n@kp.jit\ndef kernel(out, a, b, c):\n    tl.store(out, f(a, b, c))\n\n{source.replace('def f', 'def g')}"
    )
    for inputs in ((1, 2, 3), (-7, 30, 5), (0, 0, 0), (12, -5, 8), (255, 6, -2)):
        out = np.array([12345], np.int32)
        run(names["kernel"], 1, out=out, a=inputs[0], b=inputs[1], c=inputs[2])
        expected = int(np.int64(names["g"](*inputs)).astype(np.int32))
        assert out[0] == expected, source
