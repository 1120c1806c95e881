"""A backend that another package brings is found, compiles, packs, guards and launches, without a change in kernelpack."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parent

OPS = '''
import torch

import kernelpack as kp
import kernelpack.language as tl


@kp.jit
def parity_kernel(x, out, n, BLOCK: tl.constexpr):
    """Adds 1 to every element if their number is odd."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + (n % 2).to(tl.float32), mask=mask)


@kp.jit
def ones_kernel(out, n, BLOCK: tl.constexpr):
    """Fills with 1 if the number of elements is no power of two, else with 0."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, ((n & (n - 1)) != 0).to(tl.float32), mask=offsets < n)


@kp.op("ones(Tensor x) -> Tensor", variants={"x": [tl.float32]}, configs={"toy": kp.Config({"BLOCK": 16})})
def ones(x):
    out = kp.empty(x.shape, torch.float32, x.device)
    ones_kernel[(kp.cdiv(x.numel(), 16),)](out, x.numel(), BLOCK=16)
    return out


@kp.op("parity(Tensor x) -> Tensor", variants={"x": [tl.float32]}, configs={"toy": kp.Config({"BLOCK": 16})})
def parity(x):
    kp.check(x.is_contiguous(), "x must be contiguous")
    out = kp.empty_like(x)
    n = x.numel()
    parity_kernel[lambda meta: (kp.cdiv(n, meta["BLOCK"]),)](x, out, n)
    return out


@kp.jit
def mix_kernel(out, n, m):
    n_bits = (n % 2) + 2 * ((n & (n - 1)) != 0).to(tl.int32)
    m_bits = (m % 2) + 2 * ((m & (m - 1)) != 0).to(tl.int32)
    tl.store(out, n_bits + 4 * m_bits)


@kp.op(
    "mix(Tensor x, int n, int m) -> Tensor",
    variants={"x": [tl.int32]},
    specialize=[
        kp.aligned(divisible=("n", "m"), inner=2),
        kp.aligned(divisible=("n",), inner=2),
        kp.aligned(divisible=("m",), inner=2),
        kp.aligned(divisible=("n",), inner=2, ones=("m",)),
        kp.aligned(inner=1, divisible=("m",), ones=("n",)),
    ],
)
def mix(x, n, m):
    out = kp.empty((1,), torch.int32, x.device)
    mix_kernel[(1,)](out, n, m)
    return out
'''

USE = """
    import math, sys, torch
    from kernelpack.backends.installed import backends
    from kernelpack.opgen.build import build, verify
    import kernelpack as kp

    assert list(backends()) == ["cpu", "cuda", "amdgpu", "toy"]
    built = build(["toy_ops.py"], namespace="toys", targets=["toy:one"], jobs=2, cache=False)
    packs = {pack.variant: pack for pack in built.packs if pack.ops == ("mix",)}
    for pack in built.packs:
        if pack.ops != ("mix",):
            print(pack.variant, pack.target, *map(str, pack.facts), pack.metadata["folded"], pack.tools["toy"])
    assert verify(["toy_ops.py"], namespace="toys", targets=["toy:one"]).differences == ()
    kp.load(built.directory)
    for n in (40, 41, 1, 0, 6):
        x = torch.randn(n)
        torch.testing.assert_close(torch.ops.toys.parity(x), x + n % 2)
        torch.testing.assert_close(torch.ops.toys.ones(x), torch.full((n,), float(n & (n - 1) != 0)))
    torch.testing.assert_close(torch.compile(torch.ops.toys.parity, fullgraph=True, dynamic=True, backend="aot_eager")(x), x)
    try:
        torch.ops.toys.parity(torch.ones(20000))
    except RuntimeError as error:
        print("refused", error)
    kp.load(built.directory).warmup(backend="toy")

    # what a call's variant assumes holds for the call, and nothing that assumes more does
    import os, random
    os.environ["TOY_LOG"] += "_of_mix"
    choose, x, calls = random.Random(5), torch.zeros(1, dtype=torch.int32), []
    properties = {prop.name: prop for prop in backends()["toy"].properties()}
    numbers = [*range(1, 12), 16, 64, 1 << 30, -2, 0, -7]
    for _ in range(10_000):
        n, m = (choose.choice((choose.choice(numbers), choose.randrange(-(2**31), 2**31))) for _ in "nm")
        calls.append({"n": n, "m": m})
        bits = [int(math.fmod(number, 2)) + 2 * (number & (number - 1) != 0) for number in (n, m)]  # remainders as C's
        assert torch.ops.toys.mix(x, n, m).item() == bits[0] + 4 * bits[1], (n, m)
    chosen = open(os.environ["TOY_LOG"]).read().split()
    assert len(chosen) == len(calls)
    def holds(pack, call):
        return all(properties[fact.property].test.holds(call[fact.parameter], fact.value) for fact in pack.facts)
    for name, call in zip(chosen, calls):
        assert holds(packs[name], call), (name, call)
        assert not any(holds(pack, call) and set(pack.facts) > set(packs[name].facts) for pack in packs.values()), (name, call)
    print("chosen", *sorted(set(chosen)))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """As if the backend's package were installed."""
    path = os.pathsep.join([str(HERE / "third_party"), str(HERE.parents[1])])
    return {**os.environ, "PYTHONPATH": path, "TOY_LOG": str(tmp_path / "log"), "KERNELPACK_LOAD_LIBRARY": "0"}


def run(code: str, cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def test_a_third_partys_backend_serves_torch_ops(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "toy_ops.py").write_text(OPS)
    done = run(USE, tmp_path, environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [
        "ones_kernel.aligned toy:one n:toy.power_of_two=1 1 1.0",  # that n is even it made nothing of
        "ones_kernel.any toy:one 0 1.0",
        "parity_kernel.aligned toy:one n:toy.even=2 1 1.0",
        "parity_kernel.any toy:one 0 1.0",
        "refused toys::parity: toys have at most 1000 programs",
        "chosen mix_kernel.aligned mix_kernel.aligned2 mix_kernel.aligned3 mix_kernel.aligned4 mix_kernel.aligned5 mix_kernel.any",
    ]
    names = (tmp_path / "log").read_text().split()
    expected = {40: ("aligned", "any"), 41: ("any", "any"), 1: ("any", "aligned"), 6: ("aligned", "any")}  # no launch for none
    assert names == [
        *(
            f"{kernel}.{suffix}"
            for pair in expected.values()
            for kernel, suffix in zip(("parity_kernel", "ones_kernel"), pair, strict=True)
        ),
        "parity_kernel.aligned",  # torch.compile's
    ]
    assert "n % 2 == 0" in (tmp_path / "toys" / "cpp" / "op_parity.cpp").read_text()
    assert "toy::is_power_of_two(x.numel())" in (tmp_path / "toys" / "cpp" / "op_ones.cpp").read_text()


LAUNCH = """
    import torch, kernelpack as kp
    from toy_ops import parity_kernel

    for n in (40, 41):
        x, out = torch.randn(n), torch.empty(n)
        parity_kernel[(kp.cdiv(n, 16),)](x, out, n, BLOCK=16, arch="toy:one")
        torch.testing.assert_close(out, x + n % 2)
    parity_kernel[(3,)](x, out, 41, BLOCK=16, arch="toy:one")
    parity_kernel[(3,)](x, out, 41, BLOCK=16)
    try:
        parity_kernel[(2000,)](x, out, 41, BLOCK=16, arch="toy:one")
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_it_launches_from_python(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "toy_ops.py").write_text(OPS)
    for _ in range(2):  # the second process finds the launcher in the cache
        done = run(LAUNCH, tmp_path, {**environment, "KERNELPACK_CACHE_DIR": str(tmp_path / "cache")})
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout == "LaunchError toys have at most 1000 programs\n"
    names = (tmp_path / "log").read_text().split()
    assert names == ["parity_kernel"] * 6  # not the launch without arch=, which is the CPU backend's
    assert len(list((tmp_path / "cache").rglob("launcher-*.so"))) == 1


def test_a_launcher_that_does_not_compile_is_told(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "toy_ops.py").write_text(OPS)
    settings = {"KERNELPACK_CACHE_DIR": str(tmp_path / "cache"), "KERNELPACK_CXX": "g++ -DKERNELPACK -include none.h"}
    done = run(LAUNCH, tmp_path, {**environment, **settings})
    assert "BuildError: the launcher of the backend toy does not compile:" in done.stderr


WITHOUT_STREAM = """
    import torch
    import kernelpack as kp
    from kernelpack.opgen.build import build
    kp.load(build(["toy_ops.py"], namespace="toys", targets=["toy:one"], jobs=1).directory)
    try:
        torch.ops.toys.parity(torch.randn(16))
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.slow
def test_a_launcher_that_says_nothing_of_streams_is_not_taken_for_another(tmp_path: Path, environment: dict[str, str]) -> None:
    """Tensors of the CPU do not make torch's threads of what a launcher takes, nor others a stream of CUDA."""
    (tmp_path / "toy_ops.py").write_text(OPS)
    done = run(WITHOUT_STREAM, tmp_path, {**environment, "KERNELPACK_CXX": "g++ -DTOY_WITHOUT_STREAM"})
    assert done.stdout.startswith(
        "toys::parity: torch's stable interface has no current stream for the devices of the backend toy\n"
        "  to fix: give its launcher current_stream"
    ), done.stderr[-3000:]


def test_what_the_backend_refuses_is_an_error_at_the_users_line(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "toy_ops.py").write_text(
        OPS.replace(
            "tl.load(x + offsets, mask=mask) +",
            "tl.sum(tl.dot(tl.zeros([16, 16], tl.float32), tl.zeros([16, 16], tl.float32))) +",
        )
    )
    done = run(
        'from kernelpack.opgen.build import build\nbuild(["toy_ops.py"], namespace="toys", targets=["toy:one"])',
        tmp_path,
        environment,
    )
    assert "toy_ops.py:13:" in done.stderr
    assert "tt.dot cannot be compiled for toy:one: toys do not multiply matrices" in done.stderr


def test_two_backends_for_one_dispatch_key_are_refused(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "toy_ops.py").write_text(OPS)
    code = 'from kernelpack.opgen.build import build\nbuild(["toy_ops.py"], namespace="toys", targets=["toy:one", "cpu:x86-64-v3"])'
    assert "backends cpu and toy both serve CPU tensors" in run(code, tmp_path, environment).stderr


def test_a_backend_that_does_not_meet_the_contract_names_its_package(tmp_path: Path, environment: dict[str, str]) -> None:
    other = tmp_path / "other_backend-2.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other-backend\nVersion: 2.0\n")
    (other / "entry_points.txt").write_text("[kernelpack.backends]\nother = collections:Absent\n")
    environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
    said = run("from kernelpack.backends.installed import backends\nbackends()", tmp_path, environment).stderr
    assert "TargetError: backend 'other' of the package other-backend cannot be used: " in said
    assert "to fix: update other-backend" in said
