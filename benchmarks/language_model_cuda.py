"""Language models served from C++ on a GPU, in bfloat16 with CUDA graphs, beside torch.compile with a static cache and CUDA graphs.

SmolLM2, and the shape of Llama-3-8B with random weights, which are written to build/language_model (16 GB). Figures of the server are those of
clients, whole requests by HTTP. Run: python -m benchmarks.language_model_cuda [--json FILE].
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, TokenType
from torch import Tensor
from torch.nn import functional

import kernelpack
from benchmarks.language_model import FOLDER, NEW, ROUNDS, Server, in_turns
from benchmarks.report import Row, Table, arguments, write_json
from kernelpack.opgen.load import own_library
from serving_examples.language_model.build import build_server
from serving_examples.language_model.export import export, metadata, save_aoti
from serving_examples.language_model.gguf_file import Config, File, shapes
from serving_examples.language_model.model import Llama
from serving_examples.language_model.tokens import model_file

LLAMA_8B = Config(layers=32, hidden=4096, heads=32, key_heads=8, feed=14336, positions=8192, base=5e5, eps=1e-5)
WORDS = 128256
BANDWIDTH = 3.35e12
"""Bytes a second of an H100 SXM's memory, as its data sheet has it."""
POSITION, LENGTH = 40, 512


def write_llama(path: Path, config: Config, words: int) -> None:
    """Writes a Llama with random weights in bfloat16; its vocabulary is SmolLM2's and words without text."""
    source, writer = GGUFReader(model_file()), GGUFWriter(path, "llama")
    writer.add_block_count(config.layers)
    writer.add_embedding_length(config.hidden)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.key_heads)
    writer.add_feed_forward_length(config.feed)
    writer.add_context_length(config.positions)
    writer.add_rope_freq_base(config.base)
    writer.add_layer_norm_rms_eps(config.eps)
    named = {name.removeprefix("tokenizer.ggml."): field.contents() for name, field in source.fields.items()}
    more = [f"<|{i}|>" for i in range(len(named["tokens"]), words)]
    writer.add_tokenizer_model(named["model"])
    writer.add_tokenizer_pre(named["pre"])
    writer.add_token_list(named["tokens"] + more)
    writer.add_token_types(named["token_type"] + [TokenType.CONTROL] * len(more))
    writer.add_token_merges(named["merges"])
    writer.add_eos_token_id(named["eos_token_id"])
    generator = torch.Generator("cuda").manual_seed(0)

    def add(name: str, *shape: int) -> None:
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", numpy.ones(shape, numpy.float32))
            return
        values = torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(0, shape[1] ** -0.5, generator=generator)
        data = values.cpu().view(torch.uint8).numpy()
        writer.add_tensor(f"{name}.weight", data, raw_dtype=GGMLQuantizationType.BF16)

    for name, shape in [*shapes(config, words), ("output", (words, config.hidden))]:
        add(name, *shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class StaticLlama(torch.nn.Module):
    """A Llama's step of one token of each sequence in plain torch, with a cache of fixed length."""

    def __init__(self, config: Config, words: int, sequences: int) -> None:
        super().__init__()
        self.config = config
        hidden, pairs = config.hidden, config.key_heads * config.size

        def weight(rows: int, columns: int) -> Tensor:
            return torch.empty(rows, columns, dtype=torch.bfloat16, device="cuda").normal_(0, columns**-0.5)

        self.words, self.head = weight(words, hidden), weight(words, hidden)
        self.layers = [
            (
                weight(hidden + 2 * pairs, hidden),
                weight(hidden, hidden),
                weight(2 * config.feed, hidden),
                weight(hidden, config.feed),
            )
            for _ in range(config.layers)
        ]
        self.scale = torch.ones(hidden, dtype=torch.bfloat16, device="cuda")
        shape = (sequences, config.key_heads, LENGTH, config.size)
        self.keys, self.values = (
            [torch.zeros(shape, dtype=torch.bfloat16, device="cuda") for _ in range(config.layers)] for _ in range(2)
        )
        turns = torch.arange(LENGTH)[:, None] * config.base ** -(torch.arange(0, config.size, 2) / config.size)
        self.angles = torch.stack((turns.cos(), turns.sin())).cuda()

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        """Maps tokens [sequences] at one position, int64 [1], to the likeliest next ones."""
        config = self.config
        visible = (torch.arange(LENGTH, device="cuda") <= position)[None, None, None]
        x = self.words[tokens]
        for (packed, output, gate_up, down), keys, values in zip(self.layers, self.keys, self.values, strict=True):
            heads = functional.linear(self.normalize(x), packed).view(len(x), -1, 1, config.size)
            query, key, value = heads.split((config.heads, config.key_heads, config.key_heads), 1)
            keys.index_copy_(2, position, self.turn(key, position))
            values.index_copy_(2, position, value)
            out = functional.scaled_dot_product_attention(self.turn(query, position), keys, values, visible, enable_gqa=True)
            x = x + functional.linear(out.flatten(1), output)
            gate, up = functional.linear(self.normalize(x), gate_up).chunk(2, -1)
            x = x + functional.linear(functional.silu(gate) * up, down)
        return functional.linear(self.normalize(x), self.head).argmax(-1)

    def normalize(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.scale.shape, self.scale, self.config.eps)

    def turn(self, x: Tensor, position: Tensor) -> Tensor:
        cos, sin = self.angles[:, position]
        left, right = x[..., ::2], x[..., 1::2]
        return torch.stack((left * cos - right * sin, right * cos + left * sin), -1).flatten(-2).to(x.dtype)


def torch_writer(config: Config, words: int, sequences: int) -> Callable[[], float]:
    """Returns what measures torch: new tokens a second, each chosen before the next one."""
    model = StaticLlama(config, words, sequences)
    step = torch.compile(model, mode="max-autotune", dynamic=False)
    tokens = torch.full((sequences,), 17, device="cuda")

    def write() -> float:
        own = tokens
        for count in range(-4, NEW):
            if count == 0:
                start = time.perf_counter()
            own = step(own, torch.tensor([POSITION + count], device="cuda")).clone()
            own.tolist()
        return sequences * NEW / (time.perf_counter() - start)

    write()
    return write


def served(name: str, file: Path, program: Path, library: Path) -> Server:
    package = FOLDER / f"{name}.cuda.pt2"
    if not package.exists():
        model = Llama(File(file), "dense").cuda()
        save_aoti(export(model), package, metadata(model, "cuda"))
        del model
        torch.cuda.empty_cache()
    return Server(program, library, package, threads=4, file=file)


def cases(
    program: Path, library: Path, quick: bool
) -> Iterator[tuple[str, Callable[[], float], Callable[[], float], float, float]]:
    """Yields a case's name, what measures the server and torch, the ratio that is asked for, and the bytes of weights of a step."""
    small = Config.of(File(model_file()))
    server = served("smollm2", model_file(), program, library)
    yield "SmolLM2, 1 sequence", lambda: server.write_many(1), torch_writer(small, 49152, 1), 1.2, 0.0
    server.process.terminate()
    if quick:
        return
    file = FOLDER / "llama-8b.gguf"
    if not file.exists():
        write_llama(file, LLAMA_8B, WORDS)
    server = served("llama-8b", file, program, library)
    config = LLAMA_8B
    rows = config.hidden * 2 + 2 * config.key_heads * config.size + 3 * config.feed
    weights = 2.0 * (config.layers * rows + WORDS) * config.hidden
    for sequences in (1, 4, 16, 64):
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        theirs = torch_writer(config, WORDS, sequences)
        yield (
            f"Llama-3-8B's shape, {sequences} sequences",
            lambda sequences=sequences: server.write_many(sequences),
            theirs,
            1.0,
            weights,
        )
    server.process.terminate()


def main(given: Sequence[str] | None = None) -> None:
    parser = arguments("benchmarks.language_model_cuda")
    parser.add_argument("--library", type=Path, default=own_library(), metavar="FOLDER", help="of the ops")
    parser.add_argument("--program", type=Path, help="the server, where it is built already")
    asked = parser.parse_args(given)
    kernelpack.load(asked.library)
    FOLDER.mkdir(parents=True, exist_ok=True)
    program = asked.program or build_server(FOLDER / "server")
    table = Table(["Llama-3-8B's shape, 64 sequences"])
    with torch.inference_mode():
        for name, ours, theirs, least, weights in cases(program, asked.library / "libkernelpack_ops.so", asked.quick):
            ours()
            found = in_turns({"kernelpack": ours, "torch.compile": theirs}, 3 if asked.quick else ROUNDS)
            mine, other = found["kernelpack"], found["torch.compile"]
            table.add(Row(name, "tokens/s", mine, "torch.compile", other, limit=least * other))
            if weights and ", 1 seq" in name:
                table.add(Row(name, "GB/s", mine * weights / 1e9, "memory", BANDWIDTH / 1e9, limit=0.85 * BANDWIDTH / 1e9))
    table.summarise()
    if asked.json is not None:
        write_json(asked.json, "cuda", table.rows)


if __name__ == "__main__":
    main()
