"""What benchmarks write: the format of the JSON file, and which side of 1 a ratio is on. Nothing here looks at a clock."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from benchmarks import attention, batch_invariance, decode, fused_rows, matmul, quantized_matmul, rowwise, sampling
from benchmarks.measure import FAST_MKL, OURS, Case, Stopwatch, cpu_threads
from benchmarks.report import Row, main
from tests.benchmarks import trivial
from tests.ops.fused_cases import CASES as FUSED


@pytest.mark.parametrize(
    ("unit", "ours", "theirs", "ratio"),
    [("GFLOP/s", 30.0, 10.0, 3.0), ("GB/s", 5.0, 10.0, 0.5), ("s", 2.0, 10.0, 5.0), ("kernels", 4.0, 2.0, 0.5)],
)
def test_a_ratio_above_one_means_that_kernelpack_is_better(unit: str, ours: float, theirs: float, ratio: float) -> None:
    assert Row("case", unit, ours, "stock torch", theirs).ratio == ratio


@pytest.mark.parametrize(
    ("unit", "ours", "kept"), [("s", 2.9, True), ("s", 3.1, False), ("GB/s", 2.9, False), ("GB/s", 3.1, True)]
)
def test_limits_are_kept_on_the_better_side(unit: str, ours: float, kept: bool) -> None:
    row = Row("case", unit, ours, "limit", 3.0, limit=3.0)
    assert row.record() == {
        "case": "case", "unit": unit, "ours": ours, "peer": "limit", "theirs": 3.0, "ratio": row.ratio, "limit": 3.0, "pass": kept,
    }  # fmt: skip


def test_a_run_prints_its_rows_and_writes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELPACK_LOAD_LIBRARY", "0")
    file = tmp_path / "rows.json"
    main("tests.benchmarks.trivial", ["--quick", "--json", str(file)])
    written = json.loads(file.read_text())
    assert written["machine"]["cpu"]
    assert written["machine"]["cores"] >= 1
    assert written["versions"]["torch"] == torch.__version__
    assert [(row["case"], row["peer"]) for row in written["rows"]] == [("adds", "stock torch"), ("adds", FAST_MKL)]
    for row in written["rows"]:
        assert set(row) == {"case", "unit", "ours", "peer", "theirs", "ratio"}
        assert row["unit"] == "GB/s"
        assert math.isclose(row["ratio"], row["ours"] / row["theirs"])
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[:3]] == ["case", "adds", "adds"]
    assert printed[3].startswith("stock torch: geometric mean")


def test_contenders_that_compute_something_else_are_found() -> None:
    stopwatch = Stopwatch(trivial, trivial.cases("cpu", True)[0])
    with pytest.raises(AssertionError, match=r"adds: wrong differs from kernelpack by"):
        stopwatch.check([OURS, "stock torch", "wrong"])


@pytest.mark.parametrize(
    "subject", [attention, batch_invariance, decode, fused_rows, matmul, quantized_matmul, rowwise, sampling]
)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_case_has_its_own_name_and_its_peers(subject: object, device: str) -> None:
    cases: list[Case] = [*subject.cases(device, False), *subject.cases(device, True)]
    assert len({case.name for case in cases}) == len(cases)
    assert all(case.peers and case.work > 0 and case.device == device for case in cases)


def test_what_was_asked_for_is_measured() -> None:
    names = {case.name for case in attention.cases("cpu", False)}
    assert len(names) == (2 * 2 * 2 * 2 + 2 * 2) * len(cpu_threads())
    assert {"fp32 d64 s1024 full 1t", "bf16 d128 s4096 causal 2t", "bf16 d64 s8192 full 1t"} <= names
    assert {peer for case in attention.cases("cpu", False) for peer in case.peers} == {"stock torch", FAST_MKL}
    assert {case.op for case in rowwise.cases("cpu", False)} == {
        "softmax",
        "rms_norm",
        "layer_norm",
        "silu_mul",
        "gelu",
        "rope",
    }
    assert {case.op for case in fused_rows.cases("cpu", False)} == set(FUSED) - {"add_rms_norm_fp8", "sample"}
    assert {case.op for case in sampling.cases("cpu", False)} == {"sample"}
    assert {"top-k, top-p fp32 1x128256", "largest bf16 64x128256"} <= {case.name for case in sampling.cases("cuda", False)}
    few = {(rows, size, size) for rows in (1, 4, 16, 64) for size in (2048, 4096)}
    cubes = {(n, n, n) for n in (512, 1024, 2048, 4096)}
    assert {case.arguments["shape"] for case in matmul.cases("cpu", False)} == cubes | few
    assert {case.op for case in matmul.cases("cpu", False)} == {"matmul", "scaled_matmul"}
    asked = {"bf16 8192 nt", "fp16 2048 nn", "bf16 16 rows 4096 nt", "bf16 64 rows 8192 nt"}
    assert asked <= {case.name for case in matmul.cases("cuda", False)}
    asked = {"bf16 d256 s512 causal", "bf16 d64 s16384 full", "bf16 d128 s4096 causal 4 key heads", "bf16 d128 s1024 full bshd"}
    assert asked <= {case.name for case in attention.cases("cuda", False)}
    full = next(case for case in attention.cases("cpu", False) if case.name == "fp32 d64 s1024 full 1t")
    causal = next(case for case in attention.cases("cpu", False) if case.name == "fp32 d64 s1024 causal 1t")
    batch, heads, length, size = full.arguments["shape"]
    assert full.work * 1e9 == 4 * batch * heads * length * length * size == causal.work * 2e9
