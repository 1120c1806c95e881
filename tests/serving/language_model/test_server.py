"""The program with SmolLM2 itself: its texts and log-probabilities are those of the same model in Python; what it refuses to serve."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from gguf import GGUFReader

from kernelpack.opgen.load import own_library
from serving_examples.language_model import measure
from serving_examples.language_model.build import build_server
from serving_examples.language_model.export import metadata, save_torchscript
from serving_examples.language_model.generate import Cache, continued, generate, read
from serving_examples.language_model.gguf_file import File
from serving_examples.language_model.model import Llama
from serving_examples.language_model.tokens import chat, model_file
from tests.serving.language_model.http_server import Server, tokenizer
from tests.serving.language_model.tiny import write_tiny

LIBRARY = own_library() / "libkernelpack_ops.so"
QUESTIONS = ("What is the capital of France?", "Name three primary colours.", "Why is the sky blue?", "Who wrote Hamlet?")
TOKENS = 16


@pytest.fixture(scope="module")
def model(smollm: File) -> Llama:
    return Llama(smollm, invariant=True)


@pytest.fixture(scope="module")
def program(shared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_server(tmp_path_factory.mktemp("server"), "-O0")


@pytest.fixture(scope="module")
def package(model: Llama, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("package") / "smollm2.pt"
    save_torchscript(model, path, metadata(model, "cpu"))
    return path


@pytest.fixture(scope="module")
def server(program: Path, package: Path) -> Iterator[Server]:
    with Server(program, "--package", package, "--library", LIBRARY, "--threads", 1, "--batch-tokens", 40) as server:
        yield server


def asked(question: str) -> dict[str, Any]:
    return {"chat": True, "messages": [{"role": "user", "content": question}], "max_tokens": TOKENS, "temperature": 0}


def test_texts_are_those_of_python_alone_and_at_once(server: Server, model: Llama) -> None:
    """Prompts are read in chunks of up to 40 tokens here, and whole in Python."""
    with torch.inference_mode():
        for question in QUESTIONS:
            tokens = [int(logits.argmax()) for logits in continued(model, [chat(tokenizer(), question)], TOKENS)]
            kept = tokens[: tokens.index(2)] if 2 in tokens else tokens
            answer = server.complete(**asked(question))
            assert answer["choices"][0]["message"]["content"] == tokenizer().decode(kept)
            assert answer["choices"][0]["finish_reason"] == ("stop" if 2 in tokens else "length")

    def probabilities(question: str) -> Any:
        return server.complete(**asked(question), logprobs=True, top_logprobs=3)["choices"][0]["logprobs"]

    alone = [probabilities(question) for question in QUESTIONS]
    with ThreadPoolExecutor(len(QUESTIONS)) as pool:
        assert list(pool.map(probabilities, QUESTIONS)) == alone


@pytest.mark.slow
def test_long_texts_are_those_of_python_alone_and_eight_at_once(server: Server, model: Llama) -> None:
    """20 texts of up to 256 tokens; test_model.py holds those of Python to torch's."""
    questions = (measure.FOLDER / "prompts.txt").read_text().splitlines()
    assert len(questions) == 20

    def text(question: str) -> str:
        answer = server.complete(**{**asked(question), "max_tokens": 256})["choices"][0]
        return str(answer["message"]["content"])

    with torch.inference_mode():
        texts = generate(model, [chat(tokenizer(), question) for question in questions], 256)
    right = [tokenizer().decode(tokens[: tokens.index(2)] if 2 in tokens else tokens) for tokens in texts]
    assert [text(question) for question in questions] == right
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(text, questions)) == right


def test_prompts_have_the_same_bits_whole_in_pieces_and_after_pages_of_others(
    program: Path, package: Path, server: Server
) -> None:
    """A call has 40 tokens: the last pieces of these prompts would have 1, 2 or 9. Asked again, they begin with pages that are known."""
    prompts = [[1000 + i for i in range(length)] for length in (41, 42, 49, 65, 66, 73, 81)]

    def probabilities(server: Server, prompt: list[int]) -> Any:
        return server.complete(prompt=prompt, max_tokens=3, temperature=0, logprobs=3)["choices"][0]["logprobs"]

    with Server(program, "--package", package, "--library", LIBRARY, "--threads", 1, "--batch-tokens", 256) as other:
        whole = [probabilities(other, prompt) for prompt in prompts]
    for _ in range(2):
        assert [probabilities(server, prompt) for prompt in prompts] == whole
    with ThreadPoolExecutor(len(prompts)) as pool:
        assert list(pool.map(lambda prompt: probabilities(server, prompt), prompts)) == whole


def test_log_probabilities_are_those_of_python(server: Server, model: Llama) -> None:
    prompt = [504, 260, 3575, 282, 4649, 314]
    answer = server.complete(prompt=prompt, max_tokens=1, temperature=0, logprobs=5)["choices"][0]["logprobs"]
    with torch.inference_mode():
        right = read(model, Cache(model.config, 1, 64), [prompt])[0].log_softmax(-1)
    values, ids = right.topk(5)
    words = [tokenizer().decode([token]) for token in ids.tolist()]
    assert answer["token_logprobs"] == pytest.approx([float(values[0])], abs=1e-4)
    assert answer["top_logprobs"][0] == pytest.approx(dict(zip(words, values.tolist(), strict=True)), abs=1e-4)


def test_settings_choose_tokens(server: Server) -> None:
    def said(**fields: Any) -> str:
        return str(server.complete(prompt="The best animal is", max_tokens=12, **fields)["choices"][0]["text"])

    greedy, drawn = said(temperature=0), said(seed=5, temperature=1)
    assert said(temperature=1.7, top_k=1) == said(temperature=1, top_p=1e-9) == said(temperature=1, min_p=1) == greedy
    assert drawn == said(seed=5, temperature=1)
    assert (
        len({greedy, drawn, said(seed=6, temperature=1), said(seed=2**63 - 1, temperature=1), said(seed=-1, temperature=1)})
        == 5
    )
    assert len(set(said(temperature=0, repetition_penalty=1.9).split())) > len(set(greedy.split())) - 3
    assert said(temperature=0, logit_bias={"1234": 100}) == tokenizer().decode([1234] * 12)


def test_weights_that_are_no_numbers_are_told(program: Path, package: Path, tmp_path: Path) -> None:
    """A scale of a block of weights is NaN; the file is right otherwise."""
    altered = tmp_path / "altered.gguf"
    altered.write_bytes(model_file().read_bytes())
    reader = GGUFReader(altered, "r+")
    weights = next(tensor for tensor in reader.tensors if tensor.name == "blk.2.ffn_down.weight")
    weights.data[5, :2] = numpy.frombuffer(numpy.float16("nan").tobytes(), numpy.uint8)
    reader.data.flush()
    with Server(program, "--package", package, "--library", LIBRARY, "--threads", 1, model=altered) as server:
        for _ in range(2):
            status, error = server.refused(prompt="Hello", max_tokens=4)
            assert (status, error["type"]) == (500, "server_error")
            assert "no numbers" in error["message"]
        assert server.ask("GET", "/health")[0] == 200


def test_what_cannot_be_served_is_refused(program: Path, package: Path, tmp_path: Path) -> None:
    def refusal(**changed: object) -> str:
        given = {"model": model_file(), "package": package, "library": LIBRARY, **changed}
        options = [str(part) for name, value in given.items() for part in (f"--{name}", value)]
        done = subprocess.run([program, *options, "--prompt", "hi"], capture_output=True, text=True)
        assert done.returncode == 1
        assert "frame #" not in done.stderr
        return done.stderr

    write_tiny(tmp_path / "tiny.gguf")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model_file().read_bytes()[:-1000])
    (tmp_path / "nothing.pt").write_bytes(b"nothing")
    assert "cut.gguf" in refusal(model=cut)
    assert "tokenizer.ggml" in refusal(model=tmp_path / "tiny.gguf")
    assert "nothing.pt" in refusal(package=tmp_path / "nothing.pt")
    assert "missing.pt2" in refusal(package=tmp_path / "missing.pt2")
    assert "missing.so" in refusal(library=tmp_path / "missing.so")
    other = tmp_path / "other.pt"
    tiny = Llama(File(tmp_path / "tiny.gguf"))
    save_torchscript(tiny, other, metadata(tiny, "cpu"))
    old = tmp_path / "old.pt"
    save_torchscript(tiny, old, {name: fact for name, fact in metadata(tiny, "cpu").items() if name != "piece"})
    assert "was not saved by this export.py\n  to fix: save it again" in refusal(package=old)
    assert "the package was made for the model llama 2 128 4 2 256" in refusal(package=other)
