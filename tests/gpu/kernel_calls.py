"""A call for every kernel that calls can reach on GPUs: small, but of several tiles, with tails, masks and all roles at work.

Each kernel is built once for aligned arguments, with sizes and strides that are multiples of 16, and once for any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import torch

from kernelpack.opgen.build import BuildPlan
from kernelpack.opgen.variants.coverage import coverage
from kernelpack.target import Target
from ops import add_rms_norm
from ops._rows import WHOLE_ROWS
from ops.repack import Format
from tests.ops import latent_batches, quantized_cases
from tests.ops.arguments import Arguments, Typed
from tests.ops.functional import module_of
from tests.ops.fused_cases import copy_blocks_call, rope_and_cache_call
from tests.ops.grid import Case
from tests.ops.layouts import contiguous, convert, gaps, padded
from tests.ops.paged_batches import Batch
from tests.ops.quantized_blocks import BESIDE, FORMATS, given
from tests.ops.sample_cases import SETTINGS, sample_call

Call = tuple[str, Callable[[], Arguments]]
E4M3 = torch.float8_e4m3fn
ODD = 7
"""By how much less sizes are no multiples of 16."""
BLOCKS = 140
"""More blocks than programs that walk over blocks: some get a second one."""
BY_BLOCKS = {96: (150, 8944), 128: (100, 34032), 192: (192, 25584), 0: (300, 22512)}
"""Rows and columns of aligned products of 16 and 8 bits for which few_blocks chooses these FEW_ROWS; more blocks than programs."""


def kernel_calls() -> list[Case]:
    """Returns the calls, with every dtype that the ops' RANGES name."""
    made: list[Case] = []
    makers = {
        "add_rms_norm": _add_rms_norm, "add_rms_norm_fp8": _add_rms_norm, "add_rms_norm_int8": _add_rms_norm, "copy_blocks": _copy_blocks,
        "embedding": _embedding, "gelu": _gelu, "gelu_and_mul": _gelu_and_mul, "layer_norm": _layer_norm, "matmul": _matmul,
        "merge_attention_states": _merge_attention_states, "mha": _mha, "mla_decode": _mla_decode, "packed_attention": _packed_attention,
        "paged_attention": _paged_attention,
        "quantized_matmul": _quantized_matmul, "repack": _repack, "rms_norm": _rms_norm, "rope": _rope, "rope_and_cache": _rope_and_cache,
        "sample": _sample, "scaled_matmul": _scaled_matmul, "silu_and_mul": _silu_and_mul, "silu_mul": _silu_mul, "softmax": _softmax,
    }  # fmt: skip
    for op, maker in makers.items():
        for name in module_of(op).RANGES["dtypes"]:
            dtype = getattr(torch, name)
            for aligned in (True, False):
                for label, make in maker(dtype, aligned):
                    made.append(Case(op, f"{label} {'aligned' if aligned else 'any'}", dtype, make))
    return made


def reachable_kernels(plan: BuildPlan, target: Target) -> frozenset[str]:
    """Returns the names of the kernels of a plan that some call gets."""
    covered = [one for op in plan.op_plans for one in coverage(op, [one for one in plan.targets if one[0] == target])]
    launches = [launch for op in plan.op_plans for launch in op.launches]
    return frozenset(
        row.variant.name
        for launch, one in zip(launches, covered, strict=True)
        for rows in launch.points[target]
        for row in rows
        if row.variant.name not in one.unreachable
    )


def _size(aligned: bool, size: int) -> int:
    return size if aligned else size - ODD


def _rows(aligned: bool) -> Iterator[tuple[int, Callable[[], torch.Tensor]]]:
    """Yields for each tile of a whole row, and 0 for rows in blocks, a length of rows and what makes some."""
    for tile in (*WHOLE_ROWS, 0):
        columns = _size(aligned, (tile or max(WHOLE_ROWS) + 256) - 16)
        rows = 136 if tile == max(WHOLE_ROWS) else 3  # the longest ask for a row that comes later
        yield columns, lambda rows=rows, columns=columns: (gaps if aligned else padded)(rows, columns)


def _softmax(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    for columns, rows in _rows(aligned):
        yield f"{columns}", lambda rows=rows: ((rows(),), {})


def _rms_norm(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    for columns, rows in _rows(aligned):
        yield f"{columns}", lambda rows=rows: ((rows(),), {})
        yield f"{columns} weight", lambda rows=rows, n=columns: ((rows(), torch.randn(n)), {})


def _add_rms_norm(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    make = gaps if aligned else padded
    for tile in (*add_rms_norm.TILES, max(add_rms_norm.TILES) + 256):
        columns = _size(aligned, tile - 16)
        yield f"{columns}", lambda n=columns: ((make(3, n), make(3, n), torch.randn(n)), {})


def _layer_norm(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    for columns, rows in _rows(aligned):
        in_blocks = columns > max(WHOLE_ROWS)
        for weight, bias in product((False, True), repeat=2):
            if weight == bias or in_blocks:  # one of the two alone has kernels for blocks only
                name = f"{columns} weight {weight} bias {bias}"

                def call(
                    rows: Callable[[], torch.Tensor] = rows, n: int = columns, weight: bool = weight, bias: bool = bias
                ) -> Arguments:
                    return (rows(), torch.randn(n) if weight else None, torch.randn(n) if bias else None), {}

                yield name, call


def _gelu(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    columns = _size(aligned, 1040)
    for tanh, make in product((0, 1), (contiguous, gaps if aligned else padded)):
        yield f"{make.__name__} {tanh}", lambda make=make, tanh=tanh: ((make(5, columns),), {"approximate": tanh})


def _silu_mul(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    columns = _size(aligned, 1040)
    for make in (contiguous, gaps if aligned else padded):
        yield make.__name__, lambda make=make: ((make(5, columns), make(5, columns)), {})


def _silu_and_mul(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    columns = 2 * _size(aligned, 1040)
    yield "halves", lambda: (((gaps if aligned else padded)(5, columns),), {})


def _gelu_and_mul(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    for approximate in (0, 1):
        for _, make in _silu_and_mul(dtype, aligned):
            yield f"{approximate}", lambda make=make, a=approximate: (make()[0], {"approximate": a})


def _embedding(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    columns = _size(aligned, 1040)
    for ids in (torch.int64, torch.int32):
        yield (
            f"{ids}",
            lambda ids=ids: ((torch.randint(0, 9, (5,)).to(ids), (gaps if aligned else padded)(9, columns)), {}),
        )


def _copy_blocks(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    yield "blocks", copy_blocks_call(3, (16 if aligned else 3, 5, _size(aligned, 64)), _size(aligned, 48))


def _sample(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    for settings in ((), ("top_k", "top_p"), tuple(SETTINGS)):
        shape, make = (5, _size(aligned, 9 * 1024)), gaps if aligned else padded
        yield f"{len(settings)} settings", sample_call(shape, settings, make=make)


def _rope(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    size, pairs = _size(aligned, 192), _size(aligned, 80)
    for interleaved, own in product((False, True), dict.fromkeys((torch.float32, dtype))):

        def call(interleaved: bool = interleaved, own: torch.dtype = own) -> Arguments:
            angles = torch.rand(70, pairs) * 6
            turns = (Typed(convert(turn, own)) for turn in (angles.cos(), angles.sin()))
            return ((gaps if aligned else padded)(2, 3, 70, size), *turns), {"interleaved": interleaved}

        yield f"{interleaved} {own}", call


def _rope_and_cache(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    size, rotary = _size(aligned, 192), _size(aligned, 160) // 2 * 2
    for interleaved, cache in product((False, True), (None, E4M3)):
        yield (
            f"{interleaved} {cache}",
            rope_and_cache_call(
                (20, 17, 9), (size, size), rotary=rotary, make=gaps if aligned else padded, cache=cache, interleaved=interleaved,
                scales=(1, 9), skipped=2,
            ),
        )  # fmt: skip


def _matmul(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    single = dtype == torch.float32
    if single:  # few rows have a kernel for few blocks, two for more; many one for few blocks, one that walks over many
        sizes = [(1, 80), (13, 80), (100, 80), (200, 128 * BLOCKS // 2 + 16 if aligned else 144)]
        sizes += [(13, 8480), (29, 8480)] if aligned else []
    else:
        sizes = [(rows, 64 * BLOCKS + 16 if aligned else 80) for rows in (13, 29, 61)]
        sizes += [*BY_BLOCKS.values()] if aligned else [(200, 272), (200, 4352)]
    for (rows, columns), transposed, bias in product(sizes, (False, True), (False, True)):
        n = _size(aligned, columns)
        k = _size(aligned, 304 if single else 1168)  # further than the rings are long

        def call(rows: int = rows, n: int = n, k: int = k, transposed: bool = transposed, bias: bool = bias) -> Arguments:
            b = gaps(n, k).t() if transposed else gaps(k, n)
            return ((gaps if aligned else padded)(rows, k), b, torch.randn(n) if bias else None), {"activation": 4}

        yield f"{rows} rows {transposed} {bias}", call
    for rows in (29, 32) if single else ():

        def column(rows: int = rows) -> Arguments:
            return ((gaps if aligned else padded)(rows, 608), torch.randn(608, 1), torch.randn(1)), {}

        yield f"one column, {rows} rows", column


def _scales_and_bias(rows: int, columns: int, bias: bool) -> tuple[Typed | None, ...]:
    """With a bias a scale for each row and column, else one for all."""
    if not bias:
        return Typed(torch.tensor(0.3)), Typed(torch.tensor(2.0)), None
    return Typed(torch.rand(rows, 1) + 0.5), Typed(torch.rand(1, columns) + 0.5), Typed(torch.randn(columns).bfloat16())


def _scaled_matmul(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    few = (13, 64 * BLOCKS + 16), (29, 64 * BLOCKS + 16), (61, 8304)
    for (rows, columns), bias in product((*few, *BY_BLOCKS.values()) if aligned else ((200, 272),), (False, True)):
        n, k = _size(aligned, columns), _size(aligned, 2320 if rows <= 150 else 1168)  # further than the rings are long

        def call(rows: int = rows, n: int = n, k: int = k, bias: bool = bias) -> Arguments:
            weight = convert(gaps(n, k), E4M3)
            return ((gaps if aligned else padded)(rows, k), Typed(weight.t()), *_scales_and_bias(rows, n, bias)), {}

        yield f"{rows} rows {bias}", call
    int8 = ((13, 272), (200, 272), (200, 4400), (300, 8208)) if aligned else ((200, 272),)
    for (rows, columns), bias in product(int8, (False, True)) if dtype == E4M3 else ():
        n, k = _size(aligned, columns), _size(aligned, 720)

        def bytes_(rows: int = rows, n: int = n, k: int = k, bias: bool = bias) -> Arguments:
            wide = torch.randint(-128, 128, (rows + n, k if aligned else k + 3), dtype=torch.int8)[:, :k]
            return (Typed(wide[:rows]), Typed(wide[rows:].t()), *_scales_and_bias(rows, n, bias)), {}

        yield f"int8 {rows} rows {bias}", bytes_


def _mha(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    """Few queries have no kernels for aligned arguments, float32 has some for large heads without a mask."""

    def call(
        heads: int, kv_heads: int, queries: int, keys: int, size: int, mask: torch.dtype | None = None, causal: bool = False
    ) -> Callable[[], Arguments]:
        def arguments() -> Arguments:
            make = gaps if aligned else padded
            q = make(1, heads, queries, size)
            k, v = make(1, kv_heads, keys, size), make(1, kv_heads, keys, size)
            added = None if mask is None else torch.randn(queries, keys)
            if mask == torch.bool:
                added = added > -1
            return (q, k, v, added), {"is_causal": causal, "enable_gqa": True}

        return arguments

    keys = _size(aligned, 208)
    narrow = dtype != torch.float32
    heads = BLOCKS // 2 if aligned and narrow else 2
    for padded_size in (32, 64, 128, 256):
        size = _size(aligned, padded_size * 3 // 4 if padded_size > 32 else 16)
        for mask in (torch.bool, dtype):
            if not aligned or narrow:
                yield f"{size} mask {mask}", call(2, 1, 190, keys, size, mask)
            if not aligned:
                yield f"{size} mask {mask} few", call(2, 1, 37, keys, size, mask)
        for causal in (False, True):
            if not aligned or narrow or padded_size >= 128:
                yield f"{size} causal {causal}", call(heads, 2, 270, keys, size, causal=causal)
            if not aligned:
                yield f"{size} causal {causal} few", call(2, 1, 37, keys, size, causal=causal)
        if narrow and padded_size > 32:
            yield f"{size} decode", call(8, 2, 2, _size(aligned, 1120), size)
    if narrow:
        size = _size(aligned, 64)
        yield "many queries, causal", call(8, 2, 3100, 77, size, causal=True)


def _paged_attention(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    """Each call has decoding rows whose keys are shared and summed up, and chunks of more rows, whose keys are shared, too, but for calls
    that are batch invariant."""
    for padded_size, narrow, invariant in product((64, 128, 256), (False, True), (False, True)):
        if narrow and (dtype != torch.bfloat16 or padded_size == 256):
            continue
        lengths = ((1, 1100), (37, 300), (2, 70))
        size = _size(aligned, padded_size * 3 // 4)
        options = {"softcap": 5.0, "batch_invariant": invariant}
        batch = Batch(f"{size} {narrow} {invariant}", lengths, size=size, narrow=narrow, sinks=True, scales=2, options=options)

        def call(batch: Batch = batch) -> Arguments:
            args, kwargs = batch.arguments(dtype)
            return tuple(map(Typed, args)), {name: Typed(x) if isinstance(x, torch.Tensor) else x for name, x in kwargs.items()}

        yield batch.name, call


def _packed_attention(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    """As _paged_attention: the kernels are the same."""
    for padded_size, invariant in product((64, 128, 256), (False, True)):
        size = _size(aligned, padded_size * 3 // 4)

        def call(size: int = size, invariant: bool = invariant) -> Arguments:
            rows = (torch.randn(40, 6, size), *torch.randn(2, 1470, 2, size))
            numbers = ([0, 1, 38, 40], [0, 1100, 1400], [1100, 300, 70])
            own = (Typed(torch.tensor(x, dtype=torch.int32)) for x in numbers)
            bounds = {"max_query_length": 37, "max_key_length": 1100, "batch_invariant": invariant}
            return (*rows, *own), {**bounds, "sinks": Typed(torch.randn(6))}

        yield f"{size} {invariant}", call


def _mla_decode(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    """Keys that are shared and summed up, for few rows and for many. Rows of the latent are aligned by their length: the queries' start is not."""
    for (heads, lengths), block in product(((5, ((1, 1100), (2, 70))), (140, ((1, 300), (2, 70)))), (16, 64)):

        def call(heads: int = heads, lengths: tuple[tuple[int, int], ...] = lengths, block: int = block) -> Arguments:
            batch = latent_batches.latent("call", lengths, heads=heads, block=block)
            (query, *rest), kwargs = latent_batches.arguments(batch, dtype)
            if not aligned:
                query = torch.cat((query.new_zeros(query.shape[0], heads, 1), query), -1)[..., 1:]
            return (query, *map(Typed, rest)), kwargs

        yield f"{heads} heads, blocks of {block}", call


def _merge_attention_states(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    size = _size(aligned, 80)
    yield (
        f"{size}",
        lambda: ((torch.randn(9, 3, size), Typed(torch.randn(3, 9)), torch.randn(9, 3, size), Typed(torch.randn(3, 9))), {}),
    )


def _quantized_matmul(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    for kind in quantized_cases.KINDS:
        for rows in (1, 16, 64, 200):
            for int8 in (False, True):
                call = quantized_cases.call(kind, (rows,), 128 if aligned else 72, 192, bias=rows == 16, int8=int8)
                yield f"{kind}, {rows} rows{' int8' if int8 else ''}", call
    if aligned:
        for rows, columns in ((200, 4352), BY_BLOCKS[96], BY_BLOCKS[192], BY_BLOCKS[0]):
            yield f"{columns} columns", quantized_cases.call(quantized_cases.KINDS[1], (rows,), columns, 192)


def _repack(dtype: torch.dtype, aligned: bool) -> Iterator[Call]:
    for format in FORMATS[dtype]:
        for kind in (torch.float16, torch.float32) if format in BESIDE else (torch.float16,):

            def call(format: Format = format, kind: torch.dtype = kind) -> Arguments:
                weight, number, scales, zeros = given(format, 128 if aligned else 72, 512, kind=kind)
                return (weight, number, None if scales is None else Typed(scales), zeros), {}

            yield f"{format.name} {kind}", call
