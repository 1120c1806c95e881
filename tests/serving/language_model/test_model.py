"""The language model computes what plain torch does: prompts and new tokens in one batch, and SmolLM2's own texts."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
import torch

from serving_examples.language_model import measure
from serving_examples.language_model.__main__ import main
from serving_examples.language_model.export import export, save_aoti, save_torchscript
from serving_examples.language_model.generate import PAGE, Cache, batch, generate, read
from serving_examples.language_model.gguf_file import File
from serving_examples.language_model.measure import compare, hold_to, linear_of_rounded
from serving_examples.language_model.model import Form, Llama
from serving_examples.language_model.tokens import chat, tokenizer_of
from serving_examples.language_model.torch_model import TorchModel
from tests.serving.language_model.tiny import write_tiny

PROMPTS = ([3, 1, 4, 1, 5, 9, 2, 6], [53], list(range(70)))
"""Of several lengths, one longer than a page."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> File:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny(path)
    return File(path)


def test_prompts_and_new_tokens_share_a_batch(tiny: File) -> None:
    """A prompt in one call, in two, and beside a sequence that has begun before it."""
    model, exact = Llama(tiny), TorchModel(tiny)
    first, second, third = PROMPTS
    cache = Cache(model.config, 3, 100)
    read(model, cache, [first, second, third[:60]])
    got = read(model, cache, [[7], [8, 9], third[60:]])
    for logits, tokens in zip(got, ([*first, 7], [*second, 8, 9], third), strict=True):
        torch.testing.assert_close(logits, exact(tokens)[0][-1], atol=2e-5, rtol=2e-5)


def test_logits_after_every_token(tiny: File) -> None:
    model, exact = Llama(tiny), TorchModel(tiny)
    got = read(model, Cache(model.config, 3, 100), PROMPTS, every=True)
    torch.testing.assert_close(got, torch.cat([exact(list(tokens))[0] for tokens in PROMPTS]), atol=2e-5, rtol=2e-5)


def test_a_sequence_says_the_same_alone(tiny: File) -> None:
    model = Llama(tiny)
    together = generate(model, PROMPTS, 12)
    assert [generate(model, [prompt], 12)[0] for prompt in PROMPTS] == together
    for prompt, text in zip(PROMPTS, together, strict=True):
        logits = TorchModel(tiny)([*prompt, *text])[0]
        assert logits.argmax(-1)[len(prompt) - 1 : -1].tolist() == text


@pytest.mark.parametrize("form", get_args(Form))
def test_an_invariant_model_gives_a_sequence_the_same_bits_beside_others(tiny: File, form: Form) -> None:
    """While prompts are read and when new tokens follow; prompts are longer than the shortest piece."""
    model = Llama(tiny, form, invariant=True)
    prompts = [PROMPTS[0], list(range(20, 37)), PROMPTS[2]]
    dtype = torch.bfloat16 if form in ("bfloat16", "dense") else torch.float32
    shared = Cache(model.config, len(prompts), 130, dtype)
    together = [read(model, shared, prompts), read(model, shared, [[7], [8], [9]])]
    for number, prompt in enumerate(prompts):
        own = Cache(model.config, 1, 130, dtype)
        for logits, tokens in zip(together, (prompt, [7 + number]), strict=True):
            assert torch.equal(read(model, own, [tokens])[0], logits[number])


def test_torch_takes_a_text_in_parts(tiny: File) -> None:
    exact = TorchModel(tiny)
    logits, past = exact(PROMPTS[2][:50])
    more, _ = exact(PROMPTS[2][50:], past)
    torch.testing.assert_close(torch.cat((logits, more)), exact(PROMPTS[2])[0], atol=2e-5, rtol=2e-5)


def test_rounded_activations_are_those_of_int8_products(tiny: File) -> None:
    """One call: roundings to another side, of which there are more after each layer, change logits far less than rounding itself."""
    model = Llama(tiny, "int8")
    got = read(model, Cache(model.config, 3, 100), PROMPTS, every=True)
    same, exact = (torch.cat([one(list(tokens))[0] for tokens in PROMPTS]) for one in (
        TorchModel(tiny, linear=linear_of_rounded), TorchModel(tiny),
    ))  # fmt: skip
    assert (got - same).norm() < 0.3 * (got - exact).norm()


def test_a_sequence_that_is_too_long_is_an_error(tiny: File) -> None:
    model = Llama(tiny)
    with pytest.raises(ValueError, match=f"a sequence has {PAGE + 1} tokens, the cache has pages for {PAGE}"):
        read(model, Cache(model.config, 1, PAGE), [[1] * (PAGE + 1)])


@pytest.mark.parametrize("kind", ["pt", "pt2"])
def test_a_saved_model_computes_what_python_does(tiny: File, tmp_path: Path, kind: str) -> None:
    """In every bit, for every number of tokens, sequences, pages and rows; also what it writes into the cache."""
    model, path = Llama(tiny), tmp_path / f"model.{kind}"
    weights = dict(model.named_buffers())
    with torch.no_grad():
        if kind == "pt":
            save_torchscript(model, path, {})
            saved = torch.jit.load(str(path))
            for name, buffer in saved.named_buffers():
                buffer.set_(weights[name])
        else:
            save_aoti(export(model), path, {})
            saved = torch._inductor.aoti_load_package(str(path))
            saved.load_constants(weights, check_full_update=True)
        for tokens in (PROMPTS, [[53]], [[1, 2, 3], [4]]):
            ours, theirs = Cache(model.config, len(tokens), 130), Cache(model.config, len(tokens), 130)
            for own in (tokens, [[7]] * len(tokens)):
                torch.testing.assert_close(saved(*batch(theirs, own)), model(*batch(ours, own)), rtol=0, atol=0)
            assert all(map(torch.equal, ours.keys + ours.values, theirs.keys + theirs.values))


def test_texts_that_part_are_noticed() -> None:
    theirs = torch.tensor([[3.0, 1.0, 0.0], [0.0, 2.0, 1.75], [5.0, 0.0, 0.0]])
    ours = theirs.clone()
    assert compare(ours, theirs) == measure.Comparison(None, 0.0, 0.0)
    ours[1, 2] = 2.5
    ours[2, 0] = 0.0
    assert compare(ours, theirs) == measure.Comparison(1, 0.25, 0.75)


def test_divergence_is_that_of_distributions() -> None:
    exact, other = torch.randn(2, 7, 40)
    right = torch.nn.functional.kl_div(other.log_softmax(-1), exact.softmax(-1), reduction="batchmean")
    assert measure.divergence(exact, other) == pytest.approx(float(right), rel=1e-5)
    assert measure.divergence(exact, exact + 3) == pytest.approx(0, abs=1e-12)


# -- SmolLM2 itself --------------------------------------------------------------------------------------------------------------

TOKENS = {
    "It's 2026: 17 times 23 is 391.": [1589, 506, 216, 34, 32, 34, 38, 42, 216, 33, 39, 1711, 216, 34, 35, 314, 216, 35, 41, 33, 30],
    "  two  spaces\n\n\tand tabs": [216, 827, 216, 5600, 1116, 197, 397, 29416],
    "naïve café, 東京 🙂": [3546, 46494, 37366, 28, 17097, 247, 126, 16736, 122, 47526],
    "<|im_start|>user\nhi<|im_end|>\n": [1, 4093, 198, 6004, 2, 198],
}  # fmt: skip
"""What llama.cpp makes of texts, with the same file."""


def test_tokens_are_those_of_llama_cpp(smollm: File) -> None:
    tokenizer = tokenizer_of(smollm)
    for text, tokens in TOKENS.items():
        assert tokenizer.encode(text).ids == tokens
        assert tokenizer.decode(tokens, skip_special_tokens=False) == text


def test_it_knows_the_capital_of_france(smollm: File, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["What is the capital of France?"]) == 0
    assert capsys.readouterr().out == "The capital of France is Paris.\n"


@pytest.mark.slow
def test_texts_are_those_of_torch(smollm: File) -> None:
    """20 prompts, 256 new tokens each: where a text parts, torch itself is not sure; logits agree to there."""
    tokenizer = tokenizer_of(smollm)
    prompts = [chat(tokenizer, line) for line in (measure.FOLDER / "prompts.txt").read_text().splitlines()]
    assert len(prompts) == 20
    with torch.inference_mode():
        found = [one for _, one in hold_to(Llama(smollm), TorchModel(smollm), prompts, 256)]
    parted = [one for one in found if one.parted is not None]
    assert len(parted) <= 1
    assert all(one.gap < 1e-3 for one in parted)
    assert all(one.error < 1e-3 for one in found)


@pytest.mark.slow
def test_products_in_int8_are_those_of_torch(smollm: File) -> None:
    """Each of the model's products, for its own input; and together they stay near to float32 (0.0051 nats)."""
    tokenizer = tokenizer_of(smollm)
    prompts = [chat(tokenizer, line) for line in (measure.FOLDER / "prompts.txt").read_text().splitlines()]
    with torch.inference_mode():
        model, exact = Llama(smollm, "int8"), TorchModel(smollm)
        held = measure.Held(model)
        logits = read(model, Cache(model.config, len(prompts), 128), prompts, every=True)
        right = torch.cat([exact(prompt)[0] for prompt in prompts])
    assert held.worst < 1e-5
    assert measure.divergence(right, logits) < 0.01
