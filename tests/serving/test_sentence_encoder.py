"""The serving examples serve: one export for every batch and length, in Python and in C++, with no Python in the process."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelpack.opgen.load import own_library
from serving_examples.demo import running_text
from serving_examples.sentence_encoder.export import export, save_aoti, save_batches, save_torchscript
from serving_examples.sentence_encoder.model import KERNELPACK, MINILM, TORCH, Config, Ops, SentenceEncoder, load_encoder
from serving_examples.sentence_encoder.programs import build_program, run_program
from serving_examples.sentence_encoder.tokens import model_folder, tokenize

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
TINY = Config(vocabulary=50, positions=4096, hidden=64, layers=2, heads=2, intermediate=96)
SHAPES = ((1, 1), (3, 1), (1, 7), (4, 7), (2, 512), (1, 4096), (17, 33))
LIBRARY = own_library() / "libkernelpack_ops.so"


def tiny(ops: Ops) -> SentenceEncoder:
    """The encoder, two layers small, with random weights that are always the same."""
    torch.manual_seed(1)
    return SentenceEncoder(TINY, ops).eval().requires_grad_(False)


def batches() -> list[torch.Tensor]:
    """Random ids of every shape; rows of a batch have different lengths, and one row is padding alone."""
    made = []
    for rows, columns in SHAPES:
        tokens = torch.randint(1, TINY.vocabulary, (rows, columns))
        for row in range(1, rows):
            tokens[row, columns - row * columns // (2 * rows) :] = TINY.padding
        made.append(tokens)
    made[-1][5] = TINY.padding
    return made


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    assert LIBRARY.is_file(), "torch.ops.kernelpack is not built; to fix: make build"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny encoder in both forms, and with batches whose embeddings plain torch computed."""
    folder = tmp_path_factory.mktemp("encoder")
    torch.manual_seed(2)
    save_batches([(tokens, tiny(TORCH)(tokens)) for tokens in batches()], folder / "batches.txt")
    save_torchscript(tiny(KERNELPACK), folder / "encoder.pt")
    save_aoti(export(tiny(KERNELPACK), TINY.positions), folder / "encoder.pt2")
    return folder


def test_the_encoder_agrees_with_plain_torch_ops() -> None:
    for tokens in batches():
        torch.testing.assert_close(tiny(KERNELPACK)(tokens), tiny(TORCH)(tokens), atol=1e-6, rtol=0)


def test_padding_does_not_change_an_embedding() -> None:
    tokens = torch.randint(1, TINY.vocabulary, (1, 9))
    padded = torch.nn.functional.pad(tokens, (0, 20), value=TINY.padding)
    torch.testing.assert_close(tiny(KERNELPACK)(padded), tiny(KERNELPACK)(tokens), atol=1e-6, rtol=0)


def test_real_weights_give_the_published_similarities() -> None:
    """The figures stand in the documentation of sentence-transformers, for these sentences and this model."""
    model = load_encoder(KERNELPACK, model_folder() / "model.safetensors")
    sentences = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    embeddings = model(tokenize(sentences, MINILM))
    published = torch.tensor([[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]])
    torch.testing.assert_close(embeddings @ embeddings.T, published, atol=1e-4, rtol=0)


def test_long_texts_are_cut_to_the_positions() -> None:
    tokens = tokenize(["word " * 1000, "short"], MINILM)
    assert tokens.shape == (2, MINILM.positions)
    assert tokens[1].count_nonzero() == 3
    assert running_text(tokens[1:, :3], 5, 12).shape == (5, 12)
    assert tokenize(["word " * 50], replace(MINILM, positions=8)).shape == (1, 8)


def test_one_saved_model_serves_all_shapes_in_python(saved: Path) -> None:
    script = torch.jit.load(saved / "encoder.pt")
    package = torch._inductor.aoti_load_package(str(saved / "encoder.pt2"))
    for tokens in batches():
        expected = tiny(TORCH)(tokens)
        torch.testing.assert_close(script(tokens), expected, atol=1e-6, rtol=0)
        torch.testing.assert_close(package(tokens), expected, atol=1e-6, rtol=0)


def test_the_saved_models_call_the_ops(saved: Path) -> None:
    script = str(torch.jit.load(saved / "encoder.pt").inlined_graph)
    program = str(export(tiny(KERNELPACK), TINY.positions).graph)
    for op, calls in (("mha", 2), ("layer_norm", 5), ("gelu", 2)):
        assert script.count(f"kernelpack::{op}(") == calls
        assert program.count(f"torch.ops.kernelpack.{op}.default") == calls


@pytest.mark.parametrize(
    ("name", "model"),
    [pytest.param("torchscript_cpp", "encoder.pt", marks=pytest.mark.slow), ("aoti_cpp", "encoder.pt2")],
)
def test_cpp_serves_the_saved_model_without_python(saved: Path, name: str, model: str) -> None:
    program = build_program(name, saved)
    passive = {"OMP_WAIT_POLICY": "passive"}  # threads that spin disturb the other tests of a parallel run
    done = run_program(program, LIBRARY, saved / model, saved / "batches.txt", seconds=0, environment=passive)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [tuple(map(int, line.replace("x", " ").split()[:2])) for line in lines[:-1]] == list(SHAPES)
    assert lines[-1].endswith("none is libpython")

    # it does compare: another embedding, a cut file, another library and a Python in its process are noticed
    def run(library: Path, batches: str, **environment: str) -> subprocess.CompletedProcess[str]:
        (saved / "changed.txt").write_text(batches)
        changed = run_program(
            program, library, saved / model, saved / "changed.txt", seconds=0, environment=passive | environment
        )
        assert changed.returncode == 1
        return changed

    text = (saved / "batches.txt").read_text()
    first, last = text.rsplit(" ", 1)
    wrong = run(LIBRARY, f"{first} {float(last) + 1e-4}\n")
    assert ["DISAGREES" in line for line in wrong.stdout.splitlines()] == [False] * (len(SHAPES) - 1) + [True, False]
    assert "cut short" in run(LIBRARY, first).stderr
    assert "is not the op library" in run(Path(torch.__file__).parent / "lib/libc10.so", text).stderr
    subprocess.run(["g++", "-shared", "-x", "c++", "/dev/null", "-o", saved / "libpython3.so"], check=True)
    assert "Python is in this process" in run(LIBRARY, text, LD_PRELOAD=str(saved / "libpython3.so")).stderr
