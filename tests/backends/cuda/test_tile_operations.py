"""Operations on whole tiles and code from outside, on the emulator: gathers, histograms, regions, libdevice, PTX, messages."""

from __future__ import annotations

import pytest
import torch

from kernelpack.backends.cuda.context import CudaContext
from kernelpack.backends.cuda.lowering.ttgir_to_llir import ttgir_to_llir
from kernelpack.backends.cuda.ttir_to_ttgir import TTGIR
from kernelpack.errors import CompilationError, EmulationError
from kernelpack.ir.text import parse_module
from kernelpack.ir.verify import verify
from kernelpack.options import Options
from kernelpack.simt import Program
from kernelpack.target import Target
from tests.backends.cuda.running import run_every_schedule

N = 256


def run(body: str, x: torch.Tensor, i: torch.Tensor, out: torch.Tensor, num_warps: int = 4) -> torch.Tensor:
    """Runs a kernel of `%v`, `%j` (N elements of x and i; `%p` points to i), whose result `%w` goes to `out`."""
    names = {torch.float16: "f16", torch.float32: "f32", torch.int32: "i32", torch.int8: "i8"}
    a, b, c = (names[tensor.dtype] for tensor in (x, i, out))
    tile = f"tensor<{N}x"

    def pointers(name: str, kind: str) -> str:
        return (
            f"%{name}s = tt.splat %{name} : !tt.ptr<{kind}> -> {tile}!tt.ptr<{kind}>>\n"
            f"%{name}p = tt.addptr %{name}s, %r : {tile}!tt.ptr<{kind}>>, {tile}i32>\n"
        )

    text = f"""tt.func public @kernel(%x: !tt.ptr<{a}>, %i: !tt.ptr<{b}>, %o: !tt.ptr<{c}>) {{
        %r = tt.make_range {{end = {N} : i32, start = 0 : i32}} : {tile}i32>
        {pointers("x", a)}{pointers("i", b)}{pointers("o", c)}
        %v = tt.load %xp : {tile}!tt.ptr<{a}>>
        %j = tt.load %ip : {tile}!tt.ptr<{b}>>
        {body}
        tt.store %op, %w : {tile}!tt.ptr<{c}>>
        tt.return
    }}"""
    module = parse_module(text)
    verify(module)
    lowered = CudaContext(Target.parse("cuda:sm_80"), Options(num_warps=num_warps), "kernel")
    ttgir = TTGIR(module, lowered)
    verify(ttgir)
    program = Program(ttgir_to_llir(ttgir, lowered), lowered.figures["threads"], lowered.figures["shared"])
    run_every_schedule(program, (1,), [x, i, out])
    return out


def integers(high: int) -> torch.Tensor:
    return torch.randint(0, high, (N,), dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8])
def test_a_gather_reads_what_the_indices_name(dtype: torch.dtype) -> None:
    x, i = torch.randn(N).mul(50).to(dtype), integers(N)
    kind = {torch.float16: "f16", torch.int8: "i8"}[dtype]
    body = f"%w = tt.gather %v[%j] {{axis = 0 : i32}} : (tensor<{N}x{kind}>, tensor<{N}xi32>) -> tensor<{N}x{kind}>"
    assert torch.equal(run(body, x, i, torch.zeros(N, dtype=dtype), 8), x[i.long()])


def test_gathers_along_an_inner_axis_stay_in_their_rows() -> None:
    x, i = torch.randn(N).half(), integers(16)
    body = f"""
        %v2 = tt.reshape %v : tensor<{N}xf16> -> tensor<16x16xf16>
        %j2 = tt.reshape %j : tensor<{N}xi32> -> tensor<16x16xi32>
        %g = tt.gather %v2[%j2] {{axis = 1 : i32}} : (tensor<16x16xf16>, tensor<16x16xi32>) -> tensor<16x16xf16>
        %w = tt.reshape %g : tensor<16x16xf16> -> tensor<{N}xf16>"""
    expected = torch.gather(x.view(16, 16), 1, i.view(16, 16).long()).view(-1)
    assert torch.equal(run(body, x, i, torch.zeros(N).half()), expected)


def test_a_histogram_counts_values_in_range_where_the_mask_is_on() -> None:
    x, i = integers(2 * N) - 20, integers(2)
    body = f"""
        %zero = arith.constant dense<0> : tensor<{N}xi32>
        %m = arith.cmpi ne, %j, %zero : tensor<{N}xi32>
        %w = tt.histogram %v, %m : tensor<{N}xi32> -> tensor<{N}xi32>"""
    counted = x[(i != 0) & (x >= 0) & (x < N)]
    assert torch.equal(run(body, x, i, torch.zeros(N, dtype=torch.int32)), torch.bincount(counted, minlength=N).int())


def test_a_region_takes_neighbours_and_may_branch() -> None:
    x, i = integers(99), integers(99)
    body = f"""
        %w = "tt.map_elementwise"(%v, %j) <{{pack = 2 : i32}}> ({{
        ^bb0(%a: i32, %b: i32, %c: i32, %d: i32):
          %p = arith.cmpi slt, %a, %c : i32
          %s = scf.if %p -> (i32) {{
            scf.yield %b : i32
          }} else {{
            scf.yield %d : i32
          }}
          tt.map_elementwise.return %s, %a : i32, i32
        }}) : (tensor<{N}xi32>, tensor<{N}xi32>) -> tensor<{N}xi32>"""
    (a, b), (c, d) = x.view(-1, 2).T, i.view(-1, 2).T
    expected = torch.stack([torch.where(a < c, b, d), a], 1).view(-1)
    assert torch.equal(run(body, x, i, torch.zeros(N, dtype=torch.int32)), expected)


def test_library_functions_are_called() -> None:
    x, kind = torch.rand(N) + 0.5, f"tensor<{N}xf32>"
    body = f'%w = tt.extern_elementwise %v, %v {{symbol = "__nv_powf"}} : ({kind}, {kind}) -> {kind}'
    torch.testing.assert_close(run(body, x, integers(9), torch.zeros(N)), x**x)


def test_assembly_gives_several_results_for_packed_elements() -> None:
    x = torch.randint(-128, 128, (N,)).to(torch.int8)
    body = f"""
        %a, %b = "tt.elementwise_inline_asm"(%v) <{{asm_string = "not.b32 $0, $2;\nmov.b32 $1, $2;", constraints = "=r,=r,r",
            packed_element = 4 : i32}}> : (tensor<{N}xi8>) -> (tensor<{N}xi8>, tensor<{N}xi8>)
        %w = arith.addi %a, %b : tensor<{N}xi8>"""
    body = body.replace("%a, %b =", "%ab:2 =").replace("%a, %b :", "%ab#0, %ab#1 :")
    assert torch.equal(run(body, x, integers(9), torch.zeros(N, dtype=torch.int8)), torch.full((N,), -1, dtype=torch.int8))


def test_constraints_that_do_not_fit_are_refused() -> None:
    body = f"""%w = "tt.elementwise_inline_asm"(%v) <{{asm_string = "mov.b32 $0, $1;", constraints = "=r,r,r"}}>
        : (tensor<{N}xi32>) -> tensor<{N}xi32>"""
    with pytest.raises(CompilationError, match="2 inputs, the operation has 1"):
        run(body, integers(9), integers(9), integers(9))


def test_compare_and_swap_changes_what_is_equal() -> None:
    x, i = integers(4), integers(4)
    before = i.clone()
    body = f"""
        %one = arith.constant dense<1> : tensor<{N}xi32>
        %w = tt.atomic_cas acq_rel, gpu, %ip, %one, %v
          : (tensor<{N}x!tt.ptr<i32>>, tensor<{N}xi32>, tensor<{N}xi32>) -> tensor<{N}xi32>"""
    assert torch.equal(run(body, x, i, torch.zeros(N, dtype=torch.int32), 16), before)
    assert torch.equal(i, torch.where(before == 1, x, before))


def test_reductions_of_what_needs_no_memory_are_right() -> None:
    body = f"""
        %r2 = tt.reshape %r : tensor<{N}xi32> -> tensor<4x{N // 4}xi32>
        %s = "tt.reduce"(%r2) <{{axis = 0 : i32}}> ({{
        ^bb0(%a: i32, %b: i32):
          %t = arith.addi %a, %b : i32
          tt.reduce.return %t : i32
        }}) : (tensor<4x{N // 4}xi32>) -> tensor<{N // 4}xi32>
        %c = tt.cat %s, %s : tensor<{N // 4}xi32> -> tensor<{N // 2}xi32>
        %w = tt.cat %c, %c : tensor<{N // 2}xi32> -> tensor<{N}xi32>"""
    sums = torch.arange(N).view(4, -1).sum(0).int()
    assert torch.equal(run(body, integers(9), integers(9), torch.zeros(N, dtype=torch.int32)), sums.repeat(4))


def test_prints_name_program_and_place(capfd: pytest.CaptureFixture[str]) -> None:
    x = torch.arange(N) / 4
    run(f'"tt.print"(%v) <{{is_signed = array<i32: 1>, prefix = "x: "}}> : (tensor<{N}xf32>) -> ()\n%w = arith.negf %v : tensor<{N}xf32>', x, integers(9), torch.zeros(N))  # fmt: skip
    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == sorted(2 * [f"pid (0, 0, 0) idx ({place:3}) x: {float(x[place]):.6f}" for place in range(N)])


def test_assertions_stop_the_program() -> None:
    body = f"""
        %m = arith.cmpi slt, %v, %j : tensor<{N}xi32>
        "tt.assert"(%m) <{{message = "x below i"}}> : (tensor<{N}xi1>) -> ()
        %w = arith.addi %v, %j : tensor<{N}xi32>"""
    x = integers(9)
    assert torch.equal(run(body, x, x + 1, torch.zeros(N, dtype=torch.int32)), 2 * x + 1)
    i = x + 1
    i[77] = x[77]
    with pytest.raises(EmulationError, match="assertion: x below i"):
        run(body, x, i, torch.zeros(N, dtype=torch.int32))
