#!/usr/bin/env python3
"""Measures PyTorch on the shapes of dchain's synthetic models, to be run beside `dchain bench --backend vulkan`.

    python3 scripts/torchbench.py [qwen2.5-0.5b] [llama-3.1-8b]

Weights and caches are random bfloat16. A decode step is a CUDA graph, the product of each layer's q, k and v, and of gate and
up, is one, and attention is the fused one of PyTorch. It prints tokens per second, medians of five: decode at a context of
512 for one session and for 64, and a prompt of 2,048 tokens. Needs torch and a CUDA device.
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F

# name: hidden, intermediate, query heads, key-value heads, head width, layers, vocabulary
SHAPES = {
    "qwen2.5-0.5b": (896, 4864, 14, 2, 64, 24, 151936),
    "llama-3.1-8b": (4096, 14336, 32, 8, 128, 32, 128256),
}
CONTEXT, PROMPT, SESSIONS, STEPS, REPEATS = 512, 2048, 64, 32, 5


class Model:
    def __init__(self, hidden, inter, heads, kv_heads, width, layers, vocab):
        self.heads, self.kv_heads, self.width = heads, kv_heads, width
        def matrix(outputs, inputs):
            return torch.randn(outputs, inputs, dtype=torch.bfloat16, device="cuda") * 0.02
        self.layers = [dict(qkv=matrix((heads + 2 * kv_heads) * width, hidden), out=matrix(hidden, heads * width),
                            gate_up=matrix(2 * inter, hidden), down=matrix(hidden, inter)) for _ in range(layers)]
        self.norm = torch.ones(hidden, dtype=torch.bfloat16, device="cuda")
        self.embedding, self.head = matrix(vocab, hidden), matrix(vocab, hidden)
        angles = torch.outer(torch.arange(PROMPT + 1.0), 1e-6 ** (torch.arange(0, width, 2) / width)).cuda()
        self.cos, self.sin = angles.cos().bfloat16(), angles.sin().bfloat16()

    def rotate(self, x, positions):
        a, b = x.chunk(2, dim=-1)
        cos, sin = self.cos[positions], self.sin[positions]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    def forward(self, ids, positions, cache=None):
        """Tokens [batch][rows] at positions [rows] to the next ids [batch]. With a cache, [layers] of keys and values
        [batch][kv heads][context][width], it attends to all of that, without one to the rows themselves."""
        batch, rows = ids.shape
        x = F.embedding(ids, self.embedding)
        for i, w in enumerate(self.layers):
            n = F.rms_norm(x, self.norm.shape, self.norm)
            qkv = F.linear(n, w["qkv"]).view(batch, rows, -1, self.width).transpose(1, 2)
            q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
            q, k = self.rotate(q, positions), self.rotate(k, positions)
            if cache is not None:
                keys, values = cache[i]
                keys.index_copy_(2, positions, k)
                values.index_copy_(2, positions, v)
                k, v = keys, values
            a = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None, enable_gqa=True)
            x = x + F.linear(a.transpose(1, 2).reshape(batch, rows, -1), w["out"])
            gate, up = F.linear(F.rms_norm(x, self.norm.shape, self.norm), w["gate_up"]).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, w["down"])
        x = F.rms_norm(x[:, -1], self.norm.shape, self.norm)
        return F.linear(x, self.head).argmax(dim=-1)


def rate(run, tokens):
    """Tokens per second of run, which computes so many of them, the median of several."""
    run()
    took = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        took.append(time.perf_counter() - start)
    return tokens / statistics.median(took)


def decode(model, sessions):
    shape = (sessions, model.kv_heads, CONTEXT, model.width)
    cache = [[torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2)] for _ in model.layers]
    ids = torch.zeros(sessions, 1, dtype=torch.long, device="cuda")
    positions = torch.tensor([CONTEXT - 1], device="cuda")

    def step():
        ids.copy_(model.forward(ids, positions, cache)[:, None])

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def steps():
        for _ in range(STEPS):
            graph.replay()
            ids.tolist()  # each token reaches the host, as in a generation

    return rate(steps, sessions * STEPS)


def prompt(model):
    ids = torch.zeros(1, PROMPT, dtype=torch.long, device="cuda")
    positions = torch.arange(PROMPT, device="cuda")
    return rate(lambda: model.forward(ids, positions), PROMPT)


def main():
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, bfloat16")
    with torch.no_grad():
        for name in sys.argv[1:] or SHAPES:
            model = Model(*SHAPES[name])
            print(f"{name}: decode {decode(model, 1):.0f}, {SESSIONS} sessions {decode(model, SESSIONS):.0f}, "
                  f"prompt of {PROMPT} {prompt(model):.0f} tokens/s", flush=True)
            del model


if __name__ == "__main__":
    main()
