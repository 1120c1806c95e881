"""Built ops work in everything that consumes torch ops: compile, export, TorchScript, AOTInductor, C++ without Python."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import textwrap
import warnings
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kernelpack.errors import BuildError
from kernelpack.opgen import aoti
from kernelpack.opgen.aoti import aoti_package
from kernelpack.opgen.build import Built
from kernelpack.opgen.emit.c_entries import entry_name
from tests.opgen.test_ops import CASES, REFERENCE, as_tuple

TORCH = Path(torch.__file__).parent


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = torch.ops.sample.broadcast_add(x, y)
        low, high = torch.ops.sample.minmax(z)
        return torch.ops.sample.row_sum(torch.ops.sample.scale(z, factor=0.5)) + low * high


def model_reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x + y
    return (z * 0.5).sum(-1) + z.amin(-1) * z.amax(-1)


@pytest.mark.parametrize("name", list(CASES))
def test_opcheck_accepts_every_op_and_overload(sample: ModuleType, name: str) -> None:
    packet = getattr(torch.ops.sample, name)
    for args, kwargs in CASES[name][:3]:
        results = torch.library.opcheck(packet.default, args, kwargs)
        assert set(results.values()) == {"SUCCESS"}
        expected = as_tuple(REFERENCE[name](*args, **kwargs))
        names = ["low", "high"] if name == "minmax" else ["out"]
        outs = {key: torch.empty_like(x, memory_format=torch.contiguous_format) for key, x in zip(names, expected, strict=True)}
        results = torch.library.opcheck(packet.out, args, {**kwargs, **outs})
        assert set(results.values()) == {"SUCCESS"}


def test_opcheck_accepts_mutation_and_numbers(sample: ModuleType) -> None:
    for op, args in (
        (torch.ops.sample.increment.default, (torch.arange(9, dtype=torch.int32), 2)),
        (torch.ops.sample.fresh.default, (torch.ones(1), [2, 3])),
    ):
        assert set(torch.library.opcheck(op, args).values()) == {"SUCCESS"}


def test_compile_with_dynamic_shapes_makes_one_graph(sample: ModuleType) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(Model(), fullgraph=True, dynamic=True, backend=backend)
    for rows, columns in ((6, 40), (3, 17), (2, 63), (9, 64)):
        x, y = torch.randn(rows, columns), torch.randn(columns)
        torch.testing.assert_close(compiled(x, y), model_reference(x, y))
    assert len(graphs) == 1


def test_inductor_runs_the_ops(sample: ModuleType) -> None:
    compiled = torch.compile(Model(), fullgraph=True, dynamic=True)
    for rows, columns in ((6, 40), (3, 17)):
        x, y = torch.randn(rows, columns), torch.randn(columns)
        torch.testing.assert_close(compiled(x, y), model_reference(x, y))


def exported() -> torch.export.ExportedProgram:
    rows, columns = torch.export.Dim("rows", min=1, max=4096), torch.export.Dim("columns", min=1, max=1000)
    shapes = {"x": {0: rows, 1: columns}, "y": {0: columns}}
    return torch.export.export(Model(), (torch.randn(6, 40), torch.randn(40)), dynamic_shapes=shapes)


def test_export_survives_host_branches(sample: ModuleType) -> None:
    """row_sum and minmax choose their kernels by the number of columns; one export serves both sides of the branch."""
    program = exported()
    for rows, columns in ((1, 1), (3, 16), (4, 64), (2, 65), (5, 1000), (4096, 3)):
        x, y = torch.randn(rows, columns), torch.randn(columns)
        torch.testing.assert_close(program.module()(x, y), model_reference(x, y))


def test_fakes_hold_no_launch_logic(sample_built: Built) -> None:
    fakes = (sample_built.directory / "fakes.py").read_text()
    body = fakes[fakes.index("def row_sum(") : fakes.index("def row_sum_out(")]
    assert body.splitlines()[2:] == [
        '    with running("sample::row_sum"):',
        '        check_dtype("x", x, (torch.float32, torch.bfloat16))',
        '        check(x.dim() >= 1, lambda: "x must have at least one dimension")',
        "        check(either(x.stride(-1) == 1, lambda: x.shape[-1] <= 1), "
        "lambda: f'the last dimension of x must be contiguous, its stride is {x.stride(-1)}')",
        "        out = empty(x.shape[0:-1], torch.float32, x.device)",
        "        return out",
        "",
        "",
    ]


def test_torch_says_that_an_op_has_no_derivative_until_it_is_given_one(sample: ModuleType) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    with pytest.warns(UserWarning, match="sample::scale: an autograd kernel was not registered"):
        torch.ops.sample.scale(x, factor=3.0).sum().backward()
    assert x.grad is None
    with torch.library._scoped_library("sample", "FRAGMENT") as library:
        torch.library.register_autograd("sample::scale", lambda context, grad: (grad * 3.0, None), lib=library)
        torch.ops.sample.scale(x, factor=3.0).sum().backward()
    assert torch.equal(x.grad, torch.full((3, 4), 3.0))


def test_unbacked_sizes_stay_symbolic(sample: ModuleType) -> None:
    class Nonzero(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.sample.scale(torch.masked_select(x, x > 0))

    program = torch.export.export(Nonzero(), (torch.randn(20),))
    for size in (1, 5, 20):
        x = torch.randn(20)
        x[size:] = -1
        torch.testing.assert_close(program.module()(x), x[x > 0] * 2)


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_torchscript_loads_in_a_fresh_process(sample: ModuleType, sample_built: Built, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(Model(), (torch.randn(6, 40), torch.randn(40)))
        scripted = torch.jit.script(Model())
    for index, module in enumerate((traced, scripted)):
        module.save(str(tmp_path / f"{index}.pt"))
        said = run(
            """
            import sys, torch
            torch.ops.load_library(sys.argv[1])
            model = torch.jit.load(sys.argv[2])
            x, y = torch.arange(12.0).reshape(3, 4), torch.ones(4)
            z = x + y
            torch.testing.assert_close(model(x, y), (z * 0.5).sum(-1) + z.amin(-1) * z.amax(-1))
            assert not [name for name in sys.modules if name.startswith("kernelpack")]
            print("agrees")
            """,
            str(sample_built.library),
            str(tmp_path / f"{index}.pt"),
        )
        assert "agrees" in said


SERVE = r"""
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/script.h>
#include <fstream>
#include <iostream>

int main(int argc, char** argv) {
  if (argc == 2) {  // a package that brings its library along
    torch::inductor::AOTIModelPackageLoader package(argv[1]);
    const auto x = torch::arange(12, torch::kFloat).reshape({3, 4});
    std::cout << "alone " << package.run({x, torch::ones({4})})[0].sum().item<float>() << "\n";
    return 0;
  }
  void* library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) { std::cerr << dlerror(); return 1; }
  using Text = const char* (*)();
  std::cout << "load error: '" << reinterpret_cast<Text>(dlsym(library, "sample_load_error"))() << "'\n";
  using Warmup = int (*)(const char*, const char*, int);
  const auto warmup = reinterpret_cast<Warmup>(dlsym(library, "sample_warmup"));
  std::cout << "warmup " << warmup("scale", "cpu", 0) << " " << warmup("absent", "cpu", 0) << " "
            << reinterpret_cast<Text>(dlsym(library, "sample_last_error"))() << "\n";
  c10::InferenceMode guard;
  const auto x = torch::arange(12, torch::kFloat).reshape({3, 4}), y = torch::ones({4});
  auto script = torch::jit::load(argv[2]);
  std::cout << "script " << script.forward({x, y}).toTensor().sum().item<float>() << "\n";
  torch::inductor::AOTIModelPackageLoader package(argv[3]);
  std::cout << "aoti " << package.run({x, y})[0].sum().item<float>() << "\n";
  try {
    script.forward({x.to(torch::kDouble), y});
  } catch (const std::exception& error) {
    std::cout << "error " << std::string(error.what()).find("sample::broadcast_add: x has dtype float64") << "\n";
  }
  std::cout << "again " << script.forward({x, y}).toTensor().sum().item<float>() << "\n";
  std::ifstream maps("/proc/self/maps");
  const std::string text((std::istreambuf_iterator<char>(maps)), {});
  std::cout << "python " << (text.find("libpython") != std::string::npos) << "\n";
}
"""


def test_packages_of_models_bring_their_op_library_along(sample_built: Built, tmp_path: Path) -> None:
    """What inductor links a model to a library by, without inductor: a library beside it is loaded, and none from where it was built."""
    (tmp_path / "model.cpp").write_text('extern "C" int model() { return 7; }')
    made, there = tmp_path / "made", tmp_path / "a folder" / "there"
    made.mkdir()
    there.mkdir(parents=True)
    library = Path(shutil.copy(sample_built.library, made))
    flags = shlex.split(f"-l{aoti._link(library)}")
    subprocess.run(["g++", "-shared", "-fPIC", "model.cpp", "-o", "model.so", *flags], cwd=tmp_path, check=True)
    package, complete = tmp_path / "made.pt2", tmp_path / "complete.pt2"
    with zipfile.ZipFile(package, "w") as archive:
        archive.write(tmp_path / "model.so", "made/data/aotinductor/model/model.so")
        archive.writestr("made/byteorder", "little")
    aoti._add(package, complete, [library])
    library.unlink()
    with zipfile.ZipFile(complete) as archive:
        names = [f"made/data/aotinductor/model/{name}" for name in ("libsample_ops.so", "model.so")]
        assert archive.namelist() == [*names, "made/byteorder"]
        archive.extractall(there)
    said = run(
        """
        import ctypes, sys, torch
        print(ctypes.CDLL(sys.argv[1]).model(), torch.ops.sample.scale(torch.ones(2)).tolist())
        """,
        str(there / names[1]),
    )
    assert said == "7 [2.0, 2.0]\n"


def test_what_no_package_is_made_of_is_refused(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    with pytest.raises(BuildError, match=r"model.zip is no name of an AOTInductor package\n  to fix: write .*model.pt2"):
        aoti_package(program, tmp_path / "model.zip", libraries=[])
    with pytest.raises(BuildError, match="holds no op library"):
        aoti_package(program, tmp_path / "model.pt2", libraries=[tmp_path])
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "libmine_ops.so").touch()
    with pytest.raises(BuildError, match="have one name\n  to fix: build one of them with another --namespace"):
        aoti_package(program, tmp_path / "model.pt2", libraries=[tmp_path / "one", tmp_path / "two"])
    assert not list(tmp_path.glob("*.pt2"))


@pytest.mark.slow  # tests/serving has C++ programs of both kinds
def test_cpp_serves_torchscript_and_aoti_without_python(sample: ModuleType, sample_built: Built, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(Model()).save(str(tmp_path / "model.pt"))
    package = str(aoti_package(exported(), tmp_path / "model.pt2", libraries=[sample_built.directory]))
    x, y = torch.randn(7, 300), torch.randn(300)
    torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x, y), model_reference(x, y))
    (tmp_path / "serve.cpp").write_text(SERVE)
    command = ["g++", "-std=c++20", "-O0", "serve.cpp", "-o", "serve", f"-I{TORCH}/include", f"-L{TORCH}/lib"]
    command += [
        f"-I{TORCH}/include/torch/csrc/api/include",
        f"-Wl,-rpath,{TORCH}/lib",
        "-Wl,--no-as-needed",
        "-ltorch",
        "-ltorch_cpu",
    ]
    subprocess.run([*command, "-lc10", "-ldl"], cwd=tmp_path, check=True)
    done = subprocess.run(
        ["./serve", str(sample_built.library), "model.pt", package], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    expected = model_reference(torch.arange(12.0).reshape(3, 4), torch.ones(4)).sum().item()
    assert done.stdout.splitlines() == [
        "load error: ''",
        "warmup 0 1 torch.ops.sample has no op absent for backend cpu",
        f"script {expected:g}",
        f"aoti {expected:g}",
        done.stdout.splitlines()[4],
        f"again {expected:g}",
        "python 0",
    ]
    assert done.stdout.splitlines()[4].startswith("error ")
    assert str(2**64 - 1) not in done.stdout.splitlines()[4]
    alone = subprocess.run(["./serve", package], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert alone.stdout == f"alone {expected:g}\n", alone.stderr[-2000:]
    said = run(
        """
        import sys, torch
        x, y = torch.arange(12.0).reshape(3, 4), torch.ones(4)
        models = [torch._inductor.aoti_load_package(sys.argv[1]) for _ in range(2)]
        print(*(f"{model(x, y).sum().item():g}" for model in models))
        held = {line.split()[-1] for line in open("/proc/self/maps") if line.strip().endswith("libsample_ops.so")}
        print(len(held), [name for name in sys.modules if name.startswith("kernelpack")])
        """,
        package,
    )
    assert said.splitlines() == [f"{expected:g} {expected:g}", "1 []"]


def test_cuda_kernels_are_registered_under_cpu_torch(sample: ModuleType) -> None:
    for name in ("sample::scale", "sample::scale.out", "sample::increment"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA")
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")


def test_second_library_of_a_namespace_is_refused(sample: ModuleType, sample_built: Built, tmp_path: Path) -> None:
    copy = tmp_path / "sample"
    shutil.copytree(sample_built.directory, copy, ignore=shutil.ignore_patterns("build", "cpp", "packs"))
    said = run(
        """
        import sys, torch, kernelpack as kp
        first = kp.load(sys.argv[1])
        assert kp.load(sys.argv[1]) is first
        try:
            kp.load(sys.argv[2])
        except ImportError as error:
            print("refused:", error)
        torch.ops.load_library(sys.argv[2] + "/libsample_ops.so")  # past Python's check: the library itself stays away
        print(torch.ops.sample.scale(torch.ones(3)))
        """,
        str(sample_built.directory),
        str(copy),
    )
    assert "refused:" in said
    assert "torch.ops.sample already has" in said
    assert "--namespace" in said
    assert "tensor([2., 2., 2.])" in said


def test_a_clash_with_another_definition_does_not_abort(sample_built: Built) -> None:
    said = run(
        """
        import sys, ctypes, torch
        library = torch.library.Library("sample", "FRAGMENT")
        library.define("minmax(Tensor x) -> Tensor")
        torch.ops.load_library(sys.argv[1])
        own = ctypes.CDLL(sys.argv[1])
        own.sample_load_error.restype = ctypes.c_char_p
        print(own.sample_load_error().decode())
        print("alive", hasattr(torch.ops.sample, "scale"))
        """,
        str(sample_built.library),
    )
    assert "torch refused minmax of torch.ops.sample" in said
    assert "alive False" in said


def test_a_library_that_is_closed_stays_usable(sample_built: Built) -> None:
    """torch keeps pointers to the ops of a library: dlclose must not take the code away."""
    said = run(
        """
        import sys, _ctypes, torch
        handle = _ctypes.dlopen(sys.argv[1], 2)
        _ctypes.dlclose(handle)
        print(torch.ops.sample.scale(torch.ones(3)))
        """,
        str(sample_built.library),
    )
    assert "tensor([2., 2., 2.])" in said


def test_the_library_needs_the_system_alone_and_exports_its_entry_points_alone(sample_built: Built) -> None:
    """Torch is found in the process: programs without it load the same file."""

    def tool(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    exports = {f"sample_{name}" for name in ("find_kernel", "launch_kernel", "load_kernels", "target", "kernels_error")}
    exports |= {f"sample_{name}" for name in ("load_error", "schema", "unboxed", "warmup", "last_error")}
    exports |= {entry_name("sample", pack) for pack in sample_built.packs} | {"kernelpack_namespace_sample"}
    library = str(sample_built.library)
    needed = {line.split("[")[1][:-1] for line in tool("readelf", "-dW", library).splitlines() if "(NEEDED)" in line}
    assert needed <= {"libstdc++.so.6", "libgcc_s.so.1", "libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
    assert set(tool("nm", "-D", "--defined-only", library).split()[2::3]) == exports
    undefined = tool("nm", "-DC", "--undefined-only", library)
    needed_symbols = [line.split()[1] for line in undefined.splitlines() if line.split()[0] == "U"]
    assert [name for name in needed_symbols if "torch" in name or "c10" in name or "ZSTD" in name] == []


PROGRAM = """
#include <stdio.h>
const char* sample_load_error(void);
int main(void) { puts(sample_load_error()); return 0; }
"""


@pytest.mark.parametrize("order", ["none", "before", "after"])
def test_a_program_that_is_linked_to_it_has_its_ops_where_it_has_torch(sample_built: Built, tmp_path: Path, order: str) -> None:
    """Whatever order the libraries are named in, which decides whose constructors run first."""
    (tmp_path / "main.c").write_text(PROGRAM)
    folder = Path(torch.__file__).parent / "lib"
    libtorch = [f"-L{folder}", f"-Wl,-rpath,{folder}", "-ltorch_cpu"]
    libraries = [str(sample_built.library), f"-Wl,-rpath,{sample_built.directory}"]
    libraries = {"none": libraries, "before": [*libtorch, *libraries], "after": [*libraries, *libtorch]}[order]
    subprocess.run(["gcc", "main.c", "-Wl,--no-as-needed", *libraries, "-o", "main"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    if order == "none":
        assert "there was no libtorch in the process when it was loaded\n  to fix: load torch first" in done.stdout
    else:
        assert done.stdout == "\n"
    assert done.stderr == ""
