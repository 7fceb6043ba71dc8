#!/usr/bin/env python3
"""Curvature of a GPT-2 with PyTorch's default attention: exact products against finite differences, in CPU time of one thread.

    tests/benchmarks/default_attention.py BUILD_DIR [--repeats N] [--length TOKENS] [--width W]

Each round measures both, one after the other: the top eigenvalue and a trace of 16 probe vectors, by ptqwatch.curvature. "to 2 %" searches by
differences on one side in both modes, and confirms them by a product in the exact one; "to 0.1 %" has central ones, as the trace does,
which are about as far from the exact product as float32 allows."""

import argparse
import os
import statistics
import time

import peers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--train", type=int, default=60, help="steps of AdamW before")
    flags = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    peers.use(build=flags.build)
    import torch
    import transformers
    from torch import nn

    import ptqwatch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.GPT2Config(
        vocab_size=64, n_embd=flags.width, n_layer=4, n_head=4, n_positions=flags.length))
    assert model.config._attn_implementation == "sdpa"

    def losses(net, batch):
        logits = net(input_ids=batch).logits[:, :-1]
        return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="none").view(len(batch), -1)

    def draw(seed):
        """Sequences in which half of the tokens follow from the one before."""
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(64, (8, flags.length), generator=generator)
        follows = torch.rand(8, flags.length, generator=generator) < 0.5
        for t in range(1, flags.length):
            tokens[:, t] = torch.where(follows[:, t], (5 * tokens[:, t - 1] + 3) % 64, tokens[:, t])
        return tokens

    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(flags.train):
        optimizer.zero_grad()
        losses(model, draw(step)).mean().backward()
        optimizer.step()
    model.eval()
    data = [draw(10_000)]
    parameters = sum(value.numel() for value in model.transformer.h.parameters())
    print(f"GPT-2 of {parameters} parameters in blocks, width {flags.width}, 4 layers, 8 sequences of {flags.length}; {flags.repeats} rounds, one thread")

    def measure(mode, residual):
        begin = time.process_time()
        found = ptqwatch.curvature(model, losses, data, mode=mode, eigenvalue_residual_ratio=residual, max_eigenvalue_products=60,
                                   trace_relative_stderr=1e-9, max_trace_probes=16)
        return time.process_time() - begin, found

    for residual, name in ((0.02, "to 2 %"), (1e-3, "to 0.1 %")):
        ratios, exact_seconds, other_seconds = [], [], []
        for _ in range(flags.repeats):
            exact, right = measure("retained_graph", residual)
            other, found = measure("finite_difference", residual)
            ratios.append(exact / other)
            exact_seconds.append(exact)
            other_seconds.append(other)
        print(f"{name:9} exact {min(exact_seconds):.2f} s, differences {min(other_seconds):.2f} s (least); exact / differences: "
              f"median {statistics.median(ratios):.2f}, least {min(ratios):.2f}, most {max(ratios):.2f}; "
              f"eigenvalue {right.top_eigenvalue:.5g} and {found.top_eigenvalue:.5g} after {right.top[0].products} and {found.top[0].products} "
              f"products, trace {right.trace.value:.5g} and {found.trace.value:.5g}")


if __name__ == "__main__":
    main()
