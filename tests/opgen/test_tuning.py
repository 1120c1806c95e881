"""What was measured decides: few configs are built, and calls get the fastest for their sizes, in Python's tables and in C++."""

from __future__ import annotations

import itertools
import math
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelpack.config import Config
from kernelpack.errors import BuildError, HostFunctionError
from kernelpack.opgen.build import Built, build, plan_library
from kernelpack.opgen.stated.config import Fastest
from kernelpack.opgen.variants.decisions import Decision, PointResults, Results, decide, measured_times, read_results
from kernelpack.target import Target

OPS = Path(__file__).parent / "tuned_ops.py"


def test_a_size_gets_the_config_of_the_first_bin_that_holds_it() -> None:
    decision = decide(["n"], {(16,): {0: 1.0, 1: 3.0}, (64,): {0: 1.0, 1: 2.0}, (1024,): {0: 2.0, 1: 1.0}})
    assert decision == Decision(("n",), (0, 1), ((64,),), (0, 1))
    assert [decision.choose((n,)) for n in (0, 16, 17, 64, 65, 1024, 5000)] == [0, 0, 0, 0, 1, 1, 1]
    assert list(decision.rows()) == [(("<= 64",), 0), (("> 64",), 1)]


def test_configs_that_are_nearly_as_good_are_not_built() -> None:
    decision = decide(["n"], {(1,): {0: 1.02, 1: 1.0, 2: 5.0}, (8,): {0: 1.0, 1: 9.0, 2: 1.01}, (64,): {0: 1.0, 2: 0.98}})
    assert (decision.configs, decision.bounds) == ((0,), ((),))


def test_combinations_that_were_not_measured_take_the_nearest_in_powers_of_two() -> None:
    decision = decide(["m", "n"], {(1, 1): {0: 1.0, 1: 2.0}, (1024, 1024): {0: 2.0, 1: 1.0}})
    assert decision.choose((1, 1024)) == decision.choose((1024, 1)) == 0  # as far from both: the smaller
    decision = decide(["m", "n"], {(1, 1): {0: 1.0, 1: 2.0}, (1024, 1): {0: 1.0, 1: 2.0}, (1024, 64): {0: 2.0, 1: 1.0}})
    assert decision.choose((1, 64)) == 0
    assert decision.choose((1024, 64)) == 1


def test_decisions_agree_with_what_was_measured_within_the_tolerance() -> None:
    numbers = random.Random(0)
    for _ in range(30):
        times = {
            sizes: {config: numbers.uniform(1, 2) for config in range(4) if numbers.random() < 0.9 or config == 0}
            for sizes in itertools.product((1, 8, 100), (3, 70), (5,))
        }
        decision = decide(["a", "b", "c"], times)
        for sizes, row in times.items():
            assert row[decision.choose(sizes)] <= min(row.values()) * 1.05


def test_devices_of_one_target_count_alike_and_other_targets_do_not(tmp_path: Path) -> None:
    fastest = Fastest((Config({"B": 1}), Config({"B": 2})), ("n",))
    target = Target.parse("cuda:sm_90a")
    for device, name, first, second in (
        ("H100", "cuda:sm_90a", 1.0, 3.0),
        ("H200", "cuda:sm_90a", 20.0, 10.0),
        ("A100", "cuda:sm_80", 9.0, 1.0),
    ):
        Results(
            "op", device, name, {"k": PointResults(("n",), "", {(4,): {"B: 1": first, "B: 2": second, "B: 3": math.inf}})}
        ).save(tmp_path)
    assert measured_times(read_results(tmp_path, "op"), target, "k", fastest) == {(4,): {0: 1.5, 1: 2.0}}
    (tmp_path / "op.broken.json").write_text("{}")
    with pytest.raises(BuildError, match=r"op\.broken\.json is not a file that kernelpack tune wrote"):
        read_results(tmp_path, "op")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"op": "x"', '"op": 3', "op: expected a text, found 3"),
        ('"H100"', "null", "device: expected a text, found null"),
        ('"cuda:sm_90a"', '"cuda"', "target 'cuda' does not have the form"),
        ('["n", "m"]', '"nm"', 'kernels.k.key: expected a list, found "nm"'),
        ("{", "[" * 100_000, "it is nested too deep"),
        ("{", "\udcff{", "utf-8"),
        ('"4 8"', '"4"', "expected 2 sizes, found '4'"),
        ('"4 8"', '"4 \u0668"', "expected 2 sizes, found '4 \u0668'"),
        ('"4 8"', f'"4 {"8" * 5000}"', "expected 2 sizes, found '4 8888"),
        ("1.5", "NaN", "expected a time in microseconds, found nan"),
        ("1.5", "-1.5", "expected a time in microseconds, found -1.5"),
        ("1.5", "Infinity", "expected a time in microseconds, found inf"),
        ("1.5", "true", "kernels.k.microseconds.4 8.B: 1: expected a number or null, found true"),
        ("1.5", "1" + "0" * 400, "kernels.k.microseconds.4 8.B: 1: expected a number or null, found 1000"),
    ],
)
def test_a_file_that_tune_did_not_write_is_refused_with_the_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = '{"op": "x", "device": "H100", "target": "cuda:sm_90a", "kernels": '
    text += '{"k": {"key": ["n", "m"], "source": "", "microseconds": {"4 8": {"B: 1": 1.5}}}}}'
    file = tmp_path / "x.y.json"
    file.write_text(text)
    assert read_results(tmp_path, "x")[0].kernels["k"].times == {(4, 8): {"B: 1": 1.5e-6}}
    assert old in text
    file.write_bytes(text.replace(old, new, 1).encode(errors="surrogateescape"))
    with pytest.raises(BuildError, match=rf"x\.y\.json is not a file that kernelpack tune wrote: .*{re.escape(message)}"):
        read_results(tmp_path, "x")


def test_a_time_that_is_written_as_0_is_compared_with_others(tmp_path: Path) -> None:
    target, fastest = Target.parse("cpu:x86-64-v3"), Fastest((Config({"B": 1}), Config({"B": 2})), ("n",))
    Results("x", "CPU", str(target), {"k": PointResults(("n",), "", {(4,): {"B: 1": 1e-9, "B: 2": 1e-8}})}).save(tmp_path)
    times = measured_times(read_results(tmp_path, "x"), target, "k", fastest)
    assert times == {(4,): {0: 1.0, 1: pytest.approx(2.0)}}


def test_a_key_that_no_call_has_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "ops.py"
    source.write_text(OPS.read_text().replace('key=["rows", "columns"]', 'key=["BLOCK"]'))
    with pytest.raises(HostFunctionError, match="key names 'BLOCK', which is no run-time integer of probe_kernel") as caught:
        plan_library([source], namespace="probes", targets=["cpu:native"])
    assert caught.value.cure == "its run-time integers are rows, columns"


def test_configs_of_one_launch_that_choose_by_different_sizes_are_refused(tmp_path: Path) -> None:
    """A call looks its sizes up in the table of its point, whichever that is: they must mean the same in all of them."""
    chosen = 'configs={"": kp.fastest([kp.Config({"BLOCK": block}) for block in (16, 64, 1024)], key=["rows", "columns"])},'
    by_target = chosen.replace(
        '{"": ', '{"cpu": kp.fastest([kp.Config({"BLOCK": 16}), kp.Config({"BLOCK": 64})], key=["columns"]), "": '
    )
    source = tmp_path / "ops.py"
    source.write_text(OPS.read_text().replace(chosen, by_target))
    assert by_target in source.read_text()
    with pytest.raises(
        HostFunctionError, match="configs of probe_kernel are chosen by columns, and by rows, columns"
    ) as caught:
        plan_library([source], namespace="probes", targets=["cpu:native", "cuda:sm_80"])
    assert caught.value.cure == "give all kp.fastest of a launch one key"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The ops, built with results that say: few columns want 64, many 1024, whatever the dtype; autotuned: 128 above 16 columns."""
    folder = tmp_path_factory.mktemp("tuned")
    shutil.copy(OPS, folder)
    by_columns = {(16,): {"BLOCK: 32": 1.0, "BLOCK: 128": 2.0}, (4096,): {"BLOCK: 32": 2.0, "BLOCK: 128": 1.0}}
    wide = {(1, 16): {"BLOCK: 64": 1.0, "BLOCK: 1024": 2.0}, (1, 4096): {"BLOCK: 64": 2.0, "BLOCK: 1024": 1.0}}
    here = str(plan_library([OPS], namespace="tuned", targets=["cpu:native"]).targets[0][0])
    probe = Results("probe", "some CPU", here, {"probe_kernel-f32": PointResults(("rows", "columns"), "", wide)})
    probe.save(folder / "tuned")
    autotuned = Results("autotuned", "some CPU", here, {"autotuned_kernel": PointResults(("columns",), "", by_columns)})
    autotuned.save(folder / "tuned")
    return build([folder / "tuned_ops.py"], namespace="tuned", targets=["cpu:native"], out=folder / "library", jobs=2)


def test_kernels_that_a_library_does_not_have_are_told(built: Built) -> None:
    command = [sys.executable, "-c", "import sys, torch; torch.ops.load_library(sys.argv[1])", str(built.library)]
    environment = {**os.environ, "KERNELPACK_CONFIG": "probe_kernl=1,autotuned_kernel=0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stderr.splitlines() == [
        "kernelpack: KERNELPACK_CONFIG names 'probe_kernl'; "
        "the kernels of torch.ops.tuned with configs to choose are autotuned_kernel, probe_kernel"
    ]


def run(built: Built, code: str, **environment: str) -> str:
    prologue = "import sys, torch; torch.ops.load_library(sys.argv[1]); probe = torch.ops.tuned.probe\n"
    command = [sys.executable, "-c", prologue + code, str(built.library)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_build_holds_the_winners_alone_and_calls_get_them(built: Built) -> None:
    assert [pack.variant for pack in built.packs] == [
        "autotuned_kernel-c0.any",
        "autotuned_kernel-c1.any",
        "probe_kernel-SIZE0.any",
        "probe_kernel-SIZE1.any",
        "probe_kernel-f16-c0.any",  # not measured: the first
        "probe_kernel-f32-c1.any",
        "probe_kernel-f32-c2.any",
    ]
    said = run(
        built,
        """
def blocks(op, dtype):
    return [op(torch.zeros(2, columns, dtype=dtype))[0].item() for columns in (1, 16, 17, 5000)]
print(blocks(probe, torch.float32), blocks(probe, torch.float16), blocks(torch.ops.tuned.autotuned, torch.float32))
""",
    )
    assert said == "[64, 64, 1024, 1024] [16, 16, 16, 16] [32, 32, 128, 128]"


def test_an_axis_that_is_no_parameter_chooses_configs_and_equal_kernels_are_one(built: Built) -> None:
    expected = "[32, 128, 32]"
    assert run(built, "print([torch.ops.tuned.sized(torch.zeros(1, n)).item() for n in (1, 16, 5000)])") == expected
    sized = next(op for op in plan_library([OPS], namespace="tuned", targets=["cpu:native"]).ops if op.name == "sized")
    assert str([sized(torch.zeros(1, n)).item() for n in (1, 16, 5000)]) == expected  # Python runs it the same


def test_an_environment_variable_overrides_the_choice(built: Built) -> None:
    code = """
print([probe(torch.zeros(1, columns))[0].item() for columns in (1, 5000)])
try:
    probe(torch.zeros(1, 1, dtype=torch.float16))
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""
    assert run(built, code, KERNELPACK_CONFIG="other=0,probe_kernel=2").splitlines() == [
        "[1024, 1024]",
        "tuned::probe: KERNELPACK_CONFIG asks for config 2 of probe_kernel, this library holds 0 for these arguments",
    ]
    code = """
try:
    probe(torch.zeros(1, 1))
except RuntimeError as error:
    print(error)
"""
    assert run(built, code, KERNELPACK_CONFIG="probe_kernel:2").splitlines() == [
        "tuned::probe: KERNELPACK_CONFIG holds 'probe_kernel:2', expected kernel=number,...",
        "  to fix: export KERNELPACK_CONFIG=probe_kernel=1; kernelpack tune --show lists them",
    ]
