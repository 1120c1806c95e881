"""What a few operations become as LLVM IR for amdgcn, and as ttgir before that: warps of 64 lanes."""

from __future__ import annotations

import re

from tests.backends.amd.kernels import ADD, TOTAL, add, compiled, copy, grid_stride, total


def llir(text: str) -> list[str]:
    """Returns the lines of an LLVM function without where they come from."""
    return [re.sub(r", !dbg !\d+", "", line).strip() for line in text.splitlines()]


def test_a_kernel_takes_its_parameters_in_order() -> None:
    lines = llir(compiled(add, ADD, {"BLOCK": 256}, until="llir", aligned=True).stages["llir"])
    (head,) = (line for line in lines if line.startswith("define"))
    assert head.startswith(
        "define amdgpu_kernel void @add(ptr addrspace(1) align 16 %x.0, ptr addrspace(1) align 16 %y.0, "
        'ptr addrspace(1) align 16 %out.0, i32 %n.0) "amdgpu-flat-work-group-size"="256,256" "uniform-work-group-size"="true"'
    )
    assert '!{i32 1, !"amdhsa_code_object_version", i32 500}' in "\n".join(lines)


def test_what_lies_side_by_side_is_one_access_of_sixteen_bytes() -> None:
    kernel = compiled(copy, {"x": "*fp32", "out": "*fp32"}, {"BLOCK": 2048}, aligned=True)
    layout = "register = [[1], [2], [1024]], lane = [[4], [8], [16], [32], [64], [128]], warp = [[256], [512]]"
    assert f"#linear = #ttg.linear<{{{layout}, block = []}}>" in kernel.stages["ttgir"]
    assert kernel.stages["llir"].count("load <4 x i32>, ptr addrspace(1)") == 2
    assert kernel.stages["amdgcn"].count("global_load_dwordx4") == kernel.stages["amdgcn"].count("global_store_dwordx4") == 2


def test_a_masked_access_is_a_branch() -> None:
    lines = llir(compiled(add, ADD, {"BLOCK": 256}, until="llir").stages["llir"])
    start = next(number for number, line in enumerate(lines) if line.startswith("br i1"))
    assert [re.sub(r"\d+", "", line) for line in lines[start : start + 6]] == [
        "br i %v, label %load, label %endload",
        "load:",
        "%v = load i, ptr addrspace() %v, align ",
        "br label %endload",
        "endload:",
        "%v = phi i [ %v, %load ], [ %v, %entry ]",
    ]


def test_a_reduction_exchanges_words_between_lanes_then_between_warps() -> None:
    text = compiled(total, TOTAL, {"BLOCK": 256}, until="llir").stages["llir"]
    lines = llir(text)
    assert "@shared_memory = internal addrspace(3) global [16 x i8] poison, align 16" in lines
    moves = [int(distance) for distance in re.findall(r"xor i32 %v\d+, (\d+)", text)]
    assert moves[:6] == [1, 2, 4, 8, 16, 32]
    assert text.count("@llvm.amdgcn.ds.bpermute(i32 %") == 6
    barrier = lines.index("call void @llvm.amdgcn.s.barrier()")
    assert lines[barrier - 1 : barrier + 2 : 2] == [
        'fence syncscope("workgroup") release',
        'fence syncscope("workgroup") acquire',
    ]


def test_programs_know_where_they_are() -> None:
    text = compiled(grid_stride, {"x": "*fp32", "n": "i32"}, {"BLOCK": 64}, until="llir").stages["llir"]
    assert "call i32 @llvm.amdgcn.workgroup.id.y()" in text
    hidden = re.search(r"(%v\d+) = call ptr addrspace\(4\) @llvm.amdgcn.implicitarg.ptr\(\)", text)
    assert hidden is not None
    assert re.search(rf"getelementptr i8, ptr addrspace\(4\) {hidden[1]}, i64 4", text)  # hidden_block_count_y


def test_warps_have_64_lanes_in_every_layout() -> None:
    text = compiled(total, TOTAL, {"BLOCK": 256}, until="ttgir").stages["ttgir"]
    assert '"ttg.threads-per-warp" = 64' in text
    lanes = re.findall(r"lane = \[(.*?)\], warp", text)
    assert lanes
    assert {len(re.findall(r"\[[\d, ]+\]", bases)) for bases in lanes} == {6}
