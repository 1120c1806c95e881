"""llama.cpp as a peer of the language-model server: `python llama_peer.py FILE.gguf`, by a Python that has llama-cpp-python.

Reads a line of JSON for each measurement, and writes the seconds that it took. {"read": N, "write": M, "sequences": S, "threads": T}: the time of
M tokens after N of each of S sequences, or without "write" of reading N. {"text": [tokens]}: the sum of the negative log-probabilities of a
text's tokens.
"""

import json
import sys
import time
from typing import Any

import llama_cpp
import numpy

CONTEXT = 8192
SILENT = llama_cpp.llama_log_callback(lambda *_: None)


def context(model: Any, threads: int, sequences: int, *, every: bool = False) -> Any:
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_ubatch, settings.n_seq_max = CONTEXT, 2048, 2048 if every else 512, sequences
    settings.n_threads = settings.n_threads_batch = threads
    settings.kv_unified = True
    return llama_cpp.llama_init_from_model(model, settings)


def decode(context: Any, tokens: list[tuple[int, int, int]], *, every: bool = False) -> None:
    """Computes tokens, each with its place and its sequence; the last of each sequence has logits."""
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    last = {sequence: i for i, (_, _, sequence) in enumerate(tokens)}
    for i, (token, place, sequence) in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, place, 1, sequence
        batch.logits[i] = every or last[sequence] == i
    if llama_cpp.llama_decode(context, batch):
        raise RuntimeError("llama_decode failed")
    llama_cpp.llama_synchronize(context)
    llama_cpp.llama_batch_free(batch)


def measured(context: Any, read: int, write: int, sequences: int) -> float:
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    start = time.perf_counter()
    for sequence in range(sequences):
        decode(context, [((i * 7919 + 13 + sequence) % 49000, i, sequence) for i in range(read)])
    if write:
        start = time.perf_counter()
    for place in range(read, read + write):
        decode(context, [((place * 977 + sequence) % 49000, place, sequence) for sequence in range(sequences)])
    return time.perf_counter() - start


def unlikeliness(model: Any, text: list[int]) -> float:
    """Returns the sum over a text's tokens, but for the first."""
    own = context(model, 2, 1, every=True)
    words = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    decode(own, [(token, i, 0) for i, token in enumerate(text)], every=True)
    total = 0.0
    for i, token in enumerate(text[1:]):
        logits = numpy.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(own, i), (words,)).astype(numpy.float64)
        peak = logits.max()
        total += peak + numpy.log(numpy.exp(logits - peak).sum()) - logits[token]
    llama_cpp.llama_free(own)
    return float(total)


def main() -> None:
    llama_cpp.llama_log_set(SILENT, None)
    llama_cpp.llama_backend_init()
    settings = llama_cpp.llama_model_default_params()
    settings.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(sys.argv[1].encode(), settings)
    contexts: dict[tuple[int, int], Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if "text" in asked:
            print(unlikeliness(model, asked["text"]), flush=True)
            continue
        key = asked["threads"], asked.get("sequences", 1)
        if key not in contexts:
            contexts[key] = context(model, *key)
            measured(contexts[key], 16, 4, key[1])
        print(measured(contexts[key], asked["read"], asked.get("write", 0), key[1]), flush=True)


if __name__ == "__main__":
    main()
