"""The language-model server under load: many clients, of whose requests a tenth is cancelled and a tenth malformed.

All other answers must be those that the same prompt has alone; at the end nothing may be left. Says how long a first token and each later one took.
Run: python -m benchmarks.language_model_load [--clients 64] [--requests 2000] [--threads 2].
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import random
import statistics
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

import kernelpack
from benchmarks.language_model import FOLDER, Server
from kernelpack.opgen.load import own_library
from serving_examples.language_model.build import build_server
from serving_examples.language_model.export import export, metadata, save_aoti
from serving_examples.language_model.gguf_file import File
from serving_examples.language_model.model import Llama
from serving_examples.language_model.tokens import model_file

PROMPTS = 100
"""Different ones; each is asked alone first."""
HEAD = {"Content-Type": "application/json"}
MALFORMED = (
    b"{", b'{"prompt": "caf\xe9"}', b"[" * 10000, b'{"prompt": 7}', b'{"prompt": [1, -1]}', b'{"prompt": "a", "max_tokens": 1e9}',
    b'{"prompt": "a", "temperature": "hot"}', b'{"prompt": "a", "model": "another"}', b"",
)  # fmt: skip


@dataclass
class Found:
    """What clients saw; times in seconds."""

    first: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)
    right: int = 0
    cancelled: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


def body(prompt: list[int], count: int) -> bytes:
    asked = {"prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True, "stream": True}
    return json.dumps(asked).encode()


def ask(port: int, data: bytes, cancel_after: int | None = None) -> tuple[int, str, list[float]]:
    """Returns the status, the text, and when each piece of it came; leaves after some pieces where it is told to."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        start = time.perf_counter()
        connection.request("POST", "/v1/completions", data, HEAD)
        response = connection.getresponse()
        text, times = "", []
        while line := response.readline():
            if line.startswith(b"data: {"):
                times.append(time.perf_counter() - start)
                text += json.loads(line[6:])["choices"][0]["text"]
                if cancel_after is not None and len(times) > cancel_after:
                    break
        return response.status, text, times
    finally:
        connection.close()


def client(port: int, jobs: list[int], pool: list[tuple[list[int], int, str]], found: Found, lock: threading.Lock) -> None:
    while True:
        with lock:
            if not jobs:
                return
            job = jobs.pop()
        own = random.Random(job)
        prompt, count, right = own.choice(pool)
        if job % 10 == 3:
            status, _, _ = ask(port, own.choice(MALFORMED))
            with lock:
                found.refused += status in (400, 404)
                if status not in (400, 404):
                    found.wrong.append(f"a malformed request had the status {status}")
        elif job % 10 == 7:
            ask(port, body(prompt, count), own.randrange(3))
            with lock:
                found.cancelled += 1
        else:
            status, text, times = ask(port, body(prompt, count))
            with lock:
                if (status, text) == (200, right):
                    found.right += 1
                    found.first.append(times[0])
                    found.later += [after - before for before, after in itertools.pairwise(times)]
                else:
                    found.wrong.append(f"{status}: {text[:60]!r} in place of {right[:60]!r}")


def resident(process: int) -> float:
    """Returns the megabytes of memory of a process."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def gauge(port: int, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def say(name: str, times: list[float]) -> None:
    cuts = statistics.quantiles(times, n=100)
    print(f"{name}: p50 {cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms, of {len(times)}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.language_model_load", description=__doc__)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--library", type=Path, default=own_library(), metavar="FOLDER", help="of the ops")
    asked = parser.parse_args()
    kernelpack.load(asked.library)
    package = FOLDER / "int8.invariant.pt2"
    if not package.exists():
        with torch.no_grad():
            model = Llama(File(model_file()), "int8", invariant=True)
            save_aoti(export(model), package, metadata(model, "cpu"))
    server = Server(build_server(FOLDER / "server"), asked.library / "libkernelpack_ops.so", package, asked.threads)
    own = random.Random(0)
    pool = []
    for _ in range(PROMPTS):
        prompt, count = [own.randrange(100, 49000) for _ in range(own.randint(16, 256))], own.randint(1, 64)
        pool.append((prompt, count, ask(server.port, body(prompt, count))[1]))
    before, start, lock, found = resident(server.process.pid), time.perf_counter(), threading.Lock(), Found()
    jobs = list(range(asked.requests))
    clients = [threading.Thread(target=client, args=(server.port, jobs, pool, found, lock)) for _ in range(asked.clients)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    passed = time.perf_counter() - start
    time.sleep(1)
    print(f"{asked.requests} requests of {asked.clients} clients in {passed:.0f} s, {asked.threads} threads")
    print(f"right {found.right}, refused {found.refused}, cancelled {found.cancelled}, wrong {len(found.wrong)}")
    for problem in found.wrong[:5]:
        print(f"  {problem}")
    say("first token", found.first)
    say("later tokens", found.later)
    print(f"memory {before:.0f} MB before, {resident(server.process.pid):.0f} MB after")
    for name in (
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:num_preemptions_total",
    ):
        print(f"{name} {gauge(server.port, name):g}")
    server.process.terminate()
    print(f"exit status {server.process.wait(60)}")
    raise SystemExit(bool(found.wrong))


if __name__ == "__main__":
    main()
