"""No fenced block is only looked at: each is run, compiled, made by a script, or stands in a table with the reason why not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernelpack.cli import VERBS
from tests.docs.pages import PAGES, ROOT, Block, blocks, name_of, prepare

NOT_RUN = {
    (
        "README.md",
        "make demo",
    ): "minutes, and packages from the network; .ci/run runs make test, tests/serving what the demo does",
    ("CONTRIBUTING.md", "make test"): "minutes, and packages from the network; .ci/run is the test of the first three",
    ("docs/standing-in.md", "pip install"): "from the network; tests/triton/test_as_triton.py installs what it installs",
    ("docs/vllm.md", "KERNELPACK_AS_TRITON=1"): "2.7 GB of packages; make vllm does it",
    (
        "docs/adopting.md",
        "KERNELPACK_AS_TRITON=1",
    ): "packages from the network; the page's first example is the same with a kernel of its own",
    ("docs/support.md", "KERNELPACK_CXX=aarch64-linux-gnu-g++"): "a compiler for ARM; make arm does the same with the ops",
    ("docs/packages.md", "make packages"): "1.5 GB of packages, and some minutes",
}
"""Blocks of commands that no test runs, by page and first words, and why. Their commands are held to their parsers by test_commands."""

MADE = {
    "docs/tour.md": "docs/tour.py makes the page from what the compiler makes; test_made_pages compares",
}
"""Pages whose blocks, but for sh, come from a script."""

DATA = {
    ("docs/write-a-backend.md", "toml"): "tests/backends/third_party/toy_backend-1.0.dist-info/entry_points.txt",
    ("docs/adopting.md", "py"): "tests/engines/packages/ask.py",
    ("docs/serving.md", "cmake"): "serving_examples/cmake/CMakeLists.txt",
    ("docs/write-a-pass.md", "mlir"): "tests/passes/data/dce.ttir",
}
"""Blocks that are no program, by page and language: the file of the project that says the same."""

KERNELS = "import torch\nimport kernelpack as kp\nimport kernelpack.language as tl\n"
PARTS = {
    ("README.md", "torch.ops.kernelpack.mha"): """
import torch
import kernelpack
q = k = v = torch.randn(1, 2, 8, 64)
BLOCK
""",
    ("docs/serving.md", "dlopen("): """
#include <dlfcn.h>
int main() {
BLOCK
}
""",
    ("docs/emulator.md", "from kernelpack.simt"): f"""
{KERNELS}
from my_ops import l2_normalize as my_op

@kp.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

x, y, n, grid = torch.randn(2, 64), torch.empty(2, 64), 128, (1,)
BLOCK
assert torch.equal(x, y)
""",
    ("docs/language.md", "import kernelpack as kp"): """
BLOCK
import torch
x, out = torch.arange(100.0), torch.empty(100)
add[2,](x, x, out, 100, BLOCK=64)
assert torch.equal(out, 2 * x)
""",
    ("docs/language.md", "@kp.aggregate"): f"""
{KERNELS}
BLOCK

@kp.jit
def second_row(x, out, stride):
    rows = Rows(x, stride)
    tl.store(out + tl.arange(0, 128), rows.load(1))

x, out = torch.randn(2, 128), torch.empty(128)
second_row[1,](x, out, 128)
assert torch.equal(out, x[1])
""",
    ("docs/write-an-op.md", "def config(point)"): f"""
{KERNELS}
from kernelpack.target import Target
BLOCK
for name, dtype, expected in (("cpu:x86-64-v3", tl.float32, 512), ("cuda:sm_80", tl.float32, 512), ("cuda:sm_80", tl.float16, 1024)):
    point = kp.VariantPoint({{"x": dtype}}, Target.parse(name), "kernel")
    assert config(point).kwargs["BLOCK"] == expected
""",
}
"""Blocks that are parts of a program, by page and first words: the program around them."""
SLOW = {"docs/emulator.md"}
"""Pages whose parts take long."""


def key_of(page: Path, block: Block) -> tuple[str, str] | None:
    """Returns which row of the tables a block is in."""
    keys = [*NOT_RUN, *PARTS]
    return next((key for key in keys if key[0] == name_of(page) and block.text.startswith(key[1])), None)


ALL = [(page, block) for page in PAGES for block in blocks(page)]


def unexplained(page: Path, block: Block) -> bool:
    """Whether nothing runs a block, and nothing says why."""
    if block.language == "sh":
        return "checked" in block.words and key_of(page, block) not in NOT_RUN
    if block.file:  # written into the folder of the page's commands: another block must name it
        others = "".join(other.text for other in blocks(page) if other is not block and other.words[1:] in ((), ("slow",)))
        return not re.search(rf"\b{Path(block.file).stem}\b", others)
    if name_of(page) in MADE or (name_of(page), block.language) in DATA:
        return False
    return key_of(page, block) not in PARTS


def test_every_block_is_run_or_says_why_not() -> None:
    found = [f"{name_of(page)}: {block.words}: {block.text.splitlines()[0]}" for page, block in ALL if unexplained(page, block)]
    assert found == []


def test_no_row_of_the_tables_is_left_over() -> None:
    assert {*NOT_RUN, *PARTS} - {key_of(page, block) for page, block in ALL} == set()
    assert set(DATA) - {(name_of(page), block.language) for page, block in ALL} == set()


def test_commands_are_in_blocks_that_say_so() -> None:
    """A block without a language shows what is printed; a command in it would be run by nobody."""
    programs = rf"(?:kernelpack (?:{'|'.join(VERBS)})|make|python|pip|git|g\+\+) [\w.-]"
    commands = re.compile(rf"^(?: {{4}})?(?:\$ )?{programs}", re.MULTILINE)
    for page in PAGES:
        known = {block.text for block in blocks(page)}
        text = page.read_text()
        plain = [block for block in re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL) if block not in known]
        indented = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        indented = "\n".join(line for line in indented.splitlines() if line.startswith("    "))
        assert [found for part in (*plain, indented) for found in commands.findall(part)] == [], name_of(page)


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=pytest.mark.slow if key[0] in SLOW else (), id=" ".join(key)) for key in PARTS]
)
def test_parts_of_programs_work(key: tuple[str, str], tmp_path: Path) -> None:
    page = ROOT / key[0]
    (block,) = (block for block in blocks(page) if key_of(page, block) == key)
    environment = prepare(page, tmp_path)
    if key[0] == "README.md":  # it calls kernelpack's own library
        del environment["KERNELPACK_LOAD_LIBRARY"]
    file = tmp_path / ("part.cpp" if block.language == "cpp" else "part.py")
    file.write_text(PARTS[key].replace("\nBLOCK\n", f"\n{block.text}\n"))
    command = (
        ["g++", "-std=c++20", "-Werror=all", str(file), "-o", "part"]
        if block.language == "cpp"
        else [sys.executable, str(file)]
    )
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{file.read_text()}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("key", DATA, ids=" ".join)
def test_what_is_no_program_is_what_a_file_says(key: tuple[str, str]) -> None:
    (block,) = (block for block in blocks(ROOT / key[0]) if block.language == key[1])
    said = {line.replace('"', "").strip() for line in block.text.splitlines() if "=" in line or key[1] != "toml"}
    held = {line.replace('"', "").strip() for line in (ROOT / DATA[key]).read_text().splitlines()}
    assert said <= held
