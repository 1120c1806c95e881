"""SmolLM2, a Llama, of kernelpack's ops alone: quantised products, a paged cache, prompts and new tokens in one call.

The module runs in Python, as TorchScript and as an AOTInductor package; each takes tensors only.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from serving_examples.language_model.gguf_file import Config, File

Form = Literal["float32", "int8", "bfloat16", "dense"]
"""Of activations and weights. float32 and bfloat16: activations, weights stay quantised. int8: as float32, but products round activations to
8 bits. dense: both in bfloat16."""


class Quantized(nn.Module):
    """Multiplies with the transpose of a quantised weight [columns, depth], of which parts lie one below the other in a file."""

    def __init__(self, file: File, *names: str, int8: bool, invariant: bool) -> None:
        super().__init__()
        for name, part in zip(("codes", "scales", "mins"), file.packed(*names), strict=True):
            self.register_buffer(name, part)
        self.columns = file.rows(*names)
        self.int8, self.invariant = int8, invariant

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.kernelpack.quantized_matmul(
            x, self.codes, self.scales, self.mins, columns=self.columns, int8=self.int8, batch_invariant=self.invariant
        )


class Dense(nn.Module):
    """The same with a weight in bfloat16."""

    def __init__(self, file: File, *names: str, invariant: bool) -> None:
        super().__init__()
        self.register_buffer("weight", file.floats(*names).bfloat16())
        self.invariant = invariant

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.kernelpack.matmul(x, self.weight.t(), batch_invariant=self.invariant)


class Norm(nn.Module):
    """Adds x to the residual, in place, and returns the sum, each row divided by the root of the mean of its squares."""

    def __init__(self, file: File, name: str, dtype: torch.dtype, eps: float) -> None:
        super().__init__()
        self.register_buffer("weight", file.floats(name).to(dtype))
        self.eps = eps

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return torch.ops.kernelpack.add_rms_norm(x, residual, self.weight, self.eps)


class Layer(nn.Module):
    """A layer's products; those that have the same input are one."""

    def __init__(
        self, query_key_value: nn.Module, output: nn.Module, gate_up: nn.Module, down: nn.Module, norms: list[Norm]
    ) -> None:
        super().__init__()
        self.query_key_value, self.output, self.gate_up, self.down = query_key_value, output, gate_up, down
        self.attention_norm, self.feed_norm = norms


class Llama(nn.Module):
    """Maps new tokens of several sequences to logits. `invariant`: a sequence's logits have the same bits whatever is beside it."""

    def __init__(self, file: File, form: Form = "float32", *, invariant: bool = False) -> None:
        super().__init__()
        config = self.config = Config.of(file)
        dtype = torch.float32 if form in ("float32", "int8") else torch.bfloat16
        self.heads, self.key_heads, self.size = config.heads, config.key_heads, config.size
        self.form, self.invariant = str(form), invariant

        def product(*names: str) -> nn.Module:
            if form == "dense":
                return Dense(file, *names, invariant=invariant)
            return Quantized(file, *names, int8=form == "int8", invariant=invariant)

        def layer(number: int) -> Layer:
            def named(*parts: str) -> list[str]:
                return [f"blk.{number}.{part}.weight" for part in parts]

            return Layer(
                product(*named("attn_q", "attn_k", "attn_v")), product(*named("attn_output")), product(*named("ffn_gate", "ffn_up")),
                product(*named("ffn_down")), [Norm(file, name, dtype, config.eps) for name in named("attn_norm", "ffn_norm")],
            )  # fmt: skip

        self.layers = nn.ModuleList(layer(number) for number in range(config.layers))
        self.norm = Norm(file, "output_norm.weight", dtype, config.eps)
        self.head = product("output.weight" if "output.weight" in file.tensors else "token_embd.weight")
        self.register_buffer("words", file.floats("token_embd.weight").to(dtype))
        self.register_buffer("angles", angles(config))

    def forward(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, starts: Tensor, lengths: Tensor, table: Tensor, rows: Tensor,
        longest: Tensor, keys: list[Tensor], values: list[Tensor],
    ) -> Tensor:  # fmt: skip
        """Writes keys and values of new tokens into the cache, and returns the logits after some of them.

        tokens, positions, slots: int64 [tokens], sequence by sequence: ids, places in their sequences, places in the cache. starts: int32
        [sequences + 1], where each sequence's tokens begin, and where the last one's end. lengths: int32 [sequences], each sequence's tokens in
        the cache, new ones included. table: int32 [sequences, pages], each sequence's pages. rows: int64 [rows], after which of the new
        tokens logits are wanted. longest: of any dtype, [the most new tokens of a sequence]; only its size is read. keys, values: each
        layer's [pages, page, key heads, head size], of the dtype of activations. Returns [rows, vocabulary].
        """
        x = torch.ops.kernelpack.embedding(tokens, self.words)
        residual = torch.zeros_like(x)
        reach = table.shape[1] * keys[0].shape[1]
        for i, layer in enumerate(self.layers):
            x = layer.query_key_value(layer.attention_norm(x, residual))
            heads = x.view(x.shape[0], self.heads + 2 * self.key_heads, self.size)
            query, key, value = heads.split([self.heads, self.key_heads, self.key_heads], 1)
            torch.ops.kernelpack.rope_and_cache(
                query, key, value, keys[i], values[i], positions, self.angles, slots, interleaved=True
            )
            out = torch.ops.kernelpack.paged_attention(
                query, keys[i], values[i], table, starts, lengths, max_query_length=longest.shape[0], max_key_length=reach,
                batch_invariant=self.invariant,
            )[0]  # fmt: skip
            x = layer.feed_norm(layer.output(out.flatten(1)), residual)
            x = layer.down(torch.ops.kernelpack.silu_and_mul(layer.gate_up(x)))
        return self.head(torch.ops.kernelpack.embedding(rows, self.norm(x, residual)))


def angles(config: Config) -> Tensor:
    """Returns the cosines of each position's pairs, then their sines: float32 [positions, head size]."""
    pairs = torch.arange(0, config.size, 2, dtype=torch.float64) / config.size
    turns = torch.arange(config.positions)[:, None] * config.base**-pairs
    return torch.cat((turns.cos(), turns.sin()), -1).float()
