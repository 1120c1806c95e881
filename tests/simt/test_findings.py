"""Each thing that the emulator reports, on a few lines of LLVM IR: what it is, where it stands, and that its cure is accepted."""

from __future__ import annotations

import re

import pytest
import torch

from kernelpack.errors import EmulationError, UnsupportedError
from kernelpack.simt import SCHEDULES, Program

HEAD = """target triple = "nvptx64-nvidia-cuda"
@shared_memory = external addrspace(3) global [0 x i8], align 1024
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare void @llvm.nvvm.bar.warp.sync(i32)
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
declare void @llvm.nvvm.cp.async.ca.shared.global.4(ptr addrspace(3), ptr addrspace(1))
declare void @llvm.nvvm.cp.async.commit.group()
declare void @llvm.nvvm.cp.async.wait.group(i32)
define ptx_kernel void @kernel(ptr addrspace(1) %x, ptr addrspace(1) %y, i32 %n) "nvvm.reqntid"="64" {
entry:
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %own = getelementptr i32, ptr addrspace(1) %x, i32 %tid
  %mine = getelementptr i32, ptr addrspace(3) @shared_memory, i32 %tid
  %turned = xor i32 %tid, 32
  %other = getelementptr i32, ptr addrspace(3) @shared_memory, i32 %turned
  %near = xor i32 %tid, 1
  %neighbour = getelementptr i32, ptr addrspace(3) @shared_memory, i32 %near
  %out = getelementptr i32, ptr addrspace(1) %y, i32 %tid
  %first = icmp eq i32 %tid, 0
  %low = icmp ult i32 %tid, 32
"""
BARRIER = "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)\n"
WARP_BARRIER = "  call void @llvm.nvvm.bar.warp.sync(i32 -1)\n"
PUT = "  store i32 %tid, ptr addrspace(3) %mine, align 4\n"
GET = "  %got = load i32, ptr addrspace(3) %other, align 4\n"
GET_NEAR = "  %got = load i32, ptr addrspace(3) %neighbour, align 4\n"
GIVE = "  store i32 %got, ptr addrspace(1) %out, align 4\n"


def _run(body: str, threads: int = 64, shared: int = 1024, x: torch.Tensor | None = None, head: str = HEAD) -> torch.Tensor:
    text = head + body + "  ret void\n}\n"
    program = Program(text, threads, shared, ["x", "y", "n"])
    y = torch.zeros(64, dtype=torch.int32)
    for schedule in SCHEDULES:
        program.run((1,), [torch.arange(64, dtype=torch.int32) if x is None else x, y, 5], schedule=schedule)
    return y


def _found(
    kind: str,
    words: str,
    body: str,
    threads: int = 64,
    shared: int = 1024,
    x: torch.Tensor | None = None,
    head: str = HEAD,
) -> None:
    with pytest.raises(EmulationError, match=re.compile(words, re.S)) as found:
        _run(body, threads, shared, x, head)
    assert found.value.kind == kind


# ---- memory ----


def test_accesses_outside_of_a_tensor() -> None:
    beyond = "  %far = getelementptr i32, ptr addrspace(1) %own, i32 {}\n  %got = load i32, ptr addrspace(1) %far, align 4\n"
    _found("out of bounds", r"4 bytes at byte 256 of x, which has 256.*load i32", beyond.format(1))
    _found("out of bounds", r"4 bytes at byte -4 of x", beyond.format(-1))


def test_accesses_between_the_elements_of_a_view() -> None:
    x = torch.arange(256, dtype=torch.int32).view(64, 4)[:, 0]
    load = "  %far = getelementptr i32, ptr addrspace(1) %x, i32 {}\n  %got = load i32, ptr addrspace(1) %far, align 4\n" + GIVE
    _run(load.format(4), x=x)
    _found("out of bounds", r"byte 20 of x lies between the tensor's elements", load.format(5), x=x)


def test_wide_accesses_that_are_not_aligned() -> None:
    wide = "  %got4 = load <4 x i32>, ptr addrspace({}) {}, align 16\n"
    _found("misaligned", "16 bytes at byte 4 of x must be aligned to 16", wide.format(1, "%own"))
    fill = PUT + BARRIER
    _found("misaligned", r"offset \d+ of shared memory must be aligned to 16", fill + wide.format(3, "%mine"))


def test_shared_memory_that_the_block_does_not_have() -> None:
    _found("out of bounds", "at offset 128 of shared memory, of which the block has 128", PUT, shared=128)


def test_shared_memory_that_nothing_wrote() -> None:
    _found("unwritten", r"thread 0 reads byte 128 of shared memory, which nothing wrote", GET)


# ---- order ----


def test_a_barrier_orders_what_warps_write_and_read() -> None:
    assert torch.equal(_run(PUT + BARRIER + GET + GIVE), (torch.arange(64) ^ 32).int())
    for missing in (PUT + GET + GIVE, PUT + WARP_BARRIER + GET + GIVE):
        with pytest.raises(EmulationError, match=r"unwritten|nothing orders the two"):
            _run(missing)


def test_reads_before_a_barrier_come_before_writes_after_it() -> None:
    again = "  store i32 7, ptr addrspace(3) %mine, align 4\n"
    _run(PUT + BARRIER + GET + GIVE + BARRIER + again)
    _found(
        "race",
        r"which thread \d+ (read|wrote); nothing orders the two",
        PUT + BARRIER + GET + GIVE + again,
    )


def test_lanes_of_a_warp_are_not_ordered_by_a_shuffle() -> None:
    shuffle = "  %ignored = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %tid, i32 1, i32 31)\n"
    assert torch.equal(_run(PUT + WARP_BARRIER + GET_NEAR + GIVE), (torch.arange(64) ^ 1).int())
    _found("race", r"which thread \d+ wrote; nothing orders the two", PUT + shuffle + GET_NEAR)


def test_two_writes_of_global_memory() -> None:
    _found("race", "byte 0 of y, which thread 0 of its block wrote", "  store i32 1, ptr addrspace(1) %y, align 4\n")
    _run("  %old = atomicrmw add ptr addrspace(1) %y, i32 1 monotonic\n")


def test_copies_are_in_flight_until_they_are_waited_for() -> None:
    copy = "  call void @llvm.nvvm.cp.async.ca.shared.global.4(ptr addrspace(3) %mine, ptr addrspace(1) %own)\n"
    commit = "  call void @llvm.nvvm.cp.async.commit.group()\n"
    wait = "  call void @llvm.nvvm.cp.async.wait.group(i32 {})\n"
    assert torch.equal(_run(copy + commit + wait.format(0) + BARRIER + GET + GIVE), (torch.arange(64) ^ 32).int())
    _found("race", r"while a copy to it is in flight.*cp\.async", copy + commit + wait.format(1) + BARRIER + GET)
    _found("race", r"nothing orders the two.*cp\.async", PUT + BARRIER + copy + commit + wait.format(0) + GET)
    _found("exit", "returns while this copy to shared memory is in flight", copy + commit)


MAPS = "@maps = internal addrspace(1) global [128 x i8] zeroinitializer, align 128\n"
TILE_AND_ZEROS = (
    "  %value = select i1 %low, i32 0, i32 %tid\n  store i32 %value, ptr addrspace(3) %mine, align 4\n"
    '  call void asm sideeffect "fence.proxy.async.shared::cta;", "~{memory}"()\n'
    "  %map = ptrtoint ptr addrspace(3) @shared_memory to i32\n  %tile = add i32 %map, 128\n"
)
"""The first warp writes what becomes a tensor map, the second one a tile after it."""
FIELDS = (
    "rank..b32 [$1], 0",
    "box_dim..b32 [$1], 0, 32",
    "global_stride..b64 [$1], 0, 16",
    "elemtype..b32 [$1], 3",
    "fill_mode..b32 [$1], 0",
)
PUBLISH = (
    "  br i1 %low, label %publish{0}, label %published{0}\npublish{0}:\n"
    '  call void asm sideeffect "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [$0], [$1], '
    '128;", "l,r"(ptr addrspace(1) @maps, i32 %map)\n  br label %published{0}\npublished{0}:\n'
)
ACQUIRE = (
    '  call void asm sideeffect "@$0 fence.proxy.tensormap::generic.acquire.gpu [$1], 128;", "b,l"(i1 %first, '
    "ptr addrspace(1) @maps)\n"
)
STORE = (
    '  call void asm sideeffect "@$0 cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [$1, {$2}], [$3];\\0A@$0 '
    'cp.async.bulk.commit_group;", "b,l,r,r"(i1 %first, ptr addrspace(1) @maps, i32 0, i32 %tile)\n'
)
STORED = '  call void asm sideeffect "cp.async.bulk.wait_group.read 0;", ""()\n'


def _fields(size: int = 32) -> str:
    asm = '  call void asm sideeffect "@$0 tensormap.replace.tile.{};", "b,r,l"(i1 %first, i32 %map, ptr addrspace(1) %y)\n'
    fields = [*FIELDS, f"global_dim..b32 [$1], 0, {size}", "global_address..b64 [$1], $2"]
    return "".join(asm.format(field.replace("..", ".shared::cta.b1024.")) for field in fields)


def test_tensor_maps_are_put_together_published_and_acquired() -> None:
    made = TILE_AND_ZEROS + BARRIER + _fields() + WARP_BARRIER + PUBLISH.format("")
    y = _run(made + ACQUIRE + STORE + STORED, head=MAPS + HEAD)
    assert torch.equal(y, torch.cat([torch.arange(32, 64), torch.zeros(32)]).int())
    for kind, words, body in (
        ("proxy fence", r"a copy uses a tensor map .* no fence\.proxy\.tensormap acquires it", made + STORE),
        ("tensor map", "published no tensor map here", ACQUIRE),
        ("tensor map", "published no tensor map here", TILE_AND_ZEROS + BARRIER + STORE),
        ("race", "nothing orders the two", TILE_AND_ZEROS + BARRIER + _fields() + PUBLISH.format("")),
        ("unwritten", "which nothing wrote", TILE_AND_ZEROS + _fields()),
        ("tensor map", "a size must not be zero", TILE_AND_ZEROS + BARRIER + _fields(0)),
    ):
        _found(kind, words, body, head=MAPS + HEAD)


def test_a_tensor_map_is_replaced_only_after_the_copies_that_use_it() -> None:
    used = TILE_AND_ZEROS + BARRIER + _fields() + WARP_BARRIER + PUBLISH.format("") + ACQUIRE + STORE
    again = _fields(16) + WARP_BARRIER + PUBLISH.format("_again")
    _run(used + STORED + again, head=MAPS + HEAD)
    _found("tensor map", "a copy by the old one may still be in flight", used + again, head=MAPS + HEAD)
    _found("proxy fence", "no fence.proxy.tensormap acquires it", used + STORED + again + STORE, head=MAPS + HEAD)


def test_stmatrix_writes_what_ldmatrix_reads() -> None:
    row = "  %bytes = shl i32 %tid, 4\n  %row = getelementptr i8, ptr addrspace(3) @shared_memory, i32 %bytes\n"
    words = "".join(f"  %w{i} = add i32 %tid, {1000 * i}\n" for i in range(4))
    place, given = "ptr addrspace(3) %row", ", ".join(f"i32 %w{i}" for i in range(4))
    for form in ("", ".trans"):
        store = f"  call void @llvm.nvvm.stmatrix.sync.aligned.m8n8.x4{form}.b16.p3({place}, {given})\n"
        load = f"  %r = call {{i32, i32, i32, i32}} @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{form}.b16.p3({place})\n"
        body = row + words + store + WARP_BARRIER + load + "  %got = extractvalue {i32, i32, i32, i32} %r, 3\n" + GIVE
        assert torch.equal(_run(body), (torch.arange(64) + 3000).int())


# ---- who goes where ----


def test_lanes_that_meet_at_different_barriers() -> None:
    halves = "  br i1 {}, label %a, label %b\na:\n{}  br label %c\nb:\n{}  br label %c\nc:\n"
    _found("divergence", "lanes of warp 0 meet at different barriers", halves.format("%first", BARRIER, BARRIER))
    _run(halves.format("%low", BARRIER, BARRIER))  # whole warps may
    shuffle = "  %got{} = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %tid, i32 1, i32 31)\n"
    both = halves.format("%first", shuffle.format(1), shuffle.format(2))
    _found("divergence", "lanes of warp 0 meet at different instructions of the whole warp", both)


def test_a_deadlock_says_where_each_group_of_threads_waits() -> None:
    body = "  br i1 %low, label %a, label %b\na:\n" + BARRIER + "  br label %b\nb:\n"
    words = r"threads 0-31 wait at barrier 0, where 32 of 64 threads are: .*barrier.*threads 32-63 have returned"
    _found("deadlock", words, body)


# ---- reports ----


def test_a_finding_names_the_line_of_python() -> None:
    text = (HEAD + GET + "  ret void\n}\n").replace("%other, align 4", "%other, align 4, !dbg !5")
    text = text.replace('"nvvm.reqntid"="64" {', '"nvvm.reqntid"="64" !dbg !4 {') + (
        '!llvm.dbg.cu = !{!1}\n!llvm.module.flags = !{!2}\n!0 = !DIFile(filename: "kernels/mine.py", directory: "")\n'
        "!1 = distinct !DICompileUnit(language: DW_LANG_Python, file: !0, emissionKind: DebugDirectivesOnly)\n"
        '!2 = !{i32 2, !"Debug Info Version", i32 3}\n!3 = !DISubroutineType(types: null)\n'
        '!4 = distinct !DISubprogram(name: "kernel", scope: !0, file: !0, line: 3, type: !3, unit: !1)\n'
        "!5 = !DILocation(line: 12, column: 9, scope: !4)\n"
    )
    with pytest.raises(EmulationError, match=r"kernels/mine\.py:12:9") as found:
        Program(text, 64, 1024).run((1,), [torch.zeros(64, dtype=torch.int32)] * 2 + [0])
    assert found.value.location is not None
    assert found.value.location.line == 12


@pytest.mark.parametrize(
    "call", ["call void @llvm.nvvm.quantum.entangle(i32 0)", 'call void asm sideeffect "quantum.entangle 1;", ""()']
)
def test_an_unknown_machine_operation_is_refused_by_name(call: str) -> None:
    with pytest.raises(UnsupportedError, match=r"quantum\.entangle"):
        _run(f"  {call}\n")


def test_an_unknown_function_is_refused_by_name() -> None:
    text = HEAD.replace("define ", "declare void @entangle(i32)\ndefine ", 1) + "  call void @entangle(i32 0)\n  ret void\n}\n"
    with pytest.raises(UnsupportedError, match="entangle"):
        Program(text, 64, 1024)
