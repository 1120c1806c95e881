"""A limit shows as many different kernels as it can."""

from __future__ import annotations

import dataclasses

from kernelpack.report.kernels import choose
from tests.report.test_page import pack


def test_each_kernel_comes_before_a_second_of_any_and_targets_take_turns() -> None:
    packs = [
        dataclasses.replace(pack(target, name=f"{kernel}-f16.{kind}", entry=f"{kernel}{target}{kind}"), ops=(op,))
        for target in ("cpu:x86-64-v3", "cuda:sm_90a")
        for op, kernel in (("mha", "decode"), ("mha", "forward"), ("softmax", "rows"))
        for kind in ("aligned", "any")
    ]
    chosen = [(one.variant, str(one.target)) for one in choose(packs, 4)]
    assert chosen == [
        ("decode-f16.aligned", "cpu:x86-64-v3"),
        ("forward-f16.aligned", "cuda:sm_90a"),
        ("rows-f16.aligned", "cpu:x86-64-v3"),
        ("decode-f16.aligned", "cuda:sm_90a"),
    ]
    assert {one.entry for one in choose(packs, 99)} == {one.entry for one in packs}
    assert choose(packs, 0) == []
