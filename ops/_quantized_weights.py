"""Quantised weights in the layout that repack makes and quantized_matmul reads, with torch: what references and tests compute with.

A weight W [N, K] of a product x W^T, K a multiple of 32, is three contiguous tensors:

- `codes`, int32 [N / 64, K / 32, bits, 64], bits 4 or 8: the 32 codes of a column's block are as many words as a code has bits. Tiles of 64
  columns are read from their beginning to their end; where N is no multiple of 64, the last one ends in zeros, here and in what follows.
  8 bits: byte j (0 the lowest) of word [t, b, i, n] is the signed code of k = 32 b + 4 i + j of column 64 t + n.
  4 bits: of word [t, b, i, n], byte j has in its low half the code of k = 32 b + 4 i + j, in its high half that of k + 16: 0 ... 15.
- `scales`, float16 or float32 [N / 64, K / group, 64]; group is a multiple of 32, or 16 where codes have 8 bits.
- `mins`, of scales' dtype, [N / 64, K / group, 64], or [N / 64, 0, 64] where there are none.

An element is scales[t, k // group, n] * code + mins[t, k // group, n]. Without mins it is scales * code of 8 bits, scales * (code - 8) of 4.
"""

import kernelpack.language as tl

TILE = tl.constexpr(64)
"""Columns of a tile of codes."""


def unpack(codes):
    """Returns the codes of `codes` [N / 64, K / 32, bits, 64] as int32 [columns of all tiles, K]: 0 ... 15 of 4 bits, -128 ... 127 of 8."""
    import torch  # builds do without it

    tiles, blocks, bits, _ = codes.shape
    columns = tiles * 64
    codes = codes.permute(1, 2, 0, 3).reshape(blocks, bits, columns)
    parts = codes[:, :, None, :] >> torch.arange(0, 32, 8, dtype=torch.int32, device=codes.device)[:, None]
    if bits == 4:
        values = torch.stack([parts & 15, (parts >> 4) & 15], 1)  # [blocks, halves, words, bytes, N]
    else:
        values = ((parts & 255) ^ 128) - 128  # [blocks, words, bytes, N]
    return values.reshape(blocks * 32, columns).T.contiguous()


def pack(values, bits):
    """Returns codes [N / 64, K / 32, bits, 64] of the integers [N, K], which `unpack` gives back, and zeros up to the next tile."""
    import torch  # builds do without it

    values = torch.nn.functional.pad(values.T, (0, -values.shape[0] % 64)).T
    columns, inner = values.shape
    kept = (values.to(torch.int64) & (2**bits - 1)).T.reshape(inner // 32, 8 // bits, bits, 4, columns)
    shifts = torch.arange(0, 32, 8, device=values.device) + torch.arange(0, 8, bits, device=values.device)[:, None, None]
    words = (kept << shifts[..., None]).sum((1, 3)).to(torch.int32)
    return words.reshape(inner // 32, bits, columns // 64, 64).permute(2, 0, 1, 3).contiguous()


def in_tiles(rows):
    """Returns a value for each column, rows [groups, N], in tiles: [N / 64, groups, 64], zeros after the last column."""
    import torch  # builds do without it

    rows = torch.nn.functional.pad(rows, (0, -rows.shape[1] % 64))
    return rows.unflatten(1, (rows.shape[1] // 64, 64)).permute(1, 0, 2).contiguous()


def dequantize(codes, scales, mins, dtype=None, columns=None):
    """Returns the weight [N, K] of `codes`, `scales` and `mins`, computed in `dtype`, which is float32 if it is not given. N is `columns`,
    or what the tiles hold."""
    import torch  # builds do without it

    dtype = dtype or torch.float32
    values = unpack(codes)
    rows, inner = values.shape
    groups = scales.shape[1]
    values = values.reshape(rows, groups, inner // max(groups, 1))
    if codes.shape[2] == 4 and mins.shape[1] == 0:
        values = values - 8
    weight = values.to(dtype) * scales.mT.reshape(rows, groups, 1).to(dtype)
    if mins.shape[1]:
        weight = weight + mins.mT.reshape(rows, groups, 1).to(dtype)
    return weight.reshape(rows, inner)[:columns]
