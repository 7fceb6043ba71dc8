"""The model of minimal.py, sharded over several processes by FSDP2, and ptqwatch on each:

    torchrun --standalone --nproc-per-node 4 examples/python/fsdp.py [--run-dir runs/fsdp] [--serve]

Each copies its own part of the weights, without a collective; local rank 0 starts the process that measures the whole."""

import argparse

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard

import minimal
import ptqwatch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run-dir", default="runs/fsdp", help="the same for all ranks, which find each other there")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--every", type=int, default=125, help="steps between snapshots")
    parser.add_argument("--serve", action="store_true", help="local rank 0 starts a server")
    args = parser.parse_args()

    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    held_out, text = minimal.TEXT[:40000], minimal.TEXT[40000:]
    same = torch.Generator().manual_seed(1)
    probe = [minimal.draw(held_out, 512, same) for _ in range(8)]
    data = torch.Generator().manual_seed(100 + rank)
    model = fully_shard(minimal.make_model(), mesh=distributed.init_device_mesh("cpu", (ranks,)))
    optimizer = torch.optim.AdamW(model.parameters())
    with ptqwatch.watch(model, build=minimal.make_model, losses=minimal.losses, probe=probe, optimizer=optimizer, every=args.every,
                        run_dir=args.run_dir, serve=args.serve) as monitor:
        for step in range(1, args.steps + 1):
            rate = minimal.RATE * min(1, (args.steps - step + 1) / minimal.DECAY)
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss = minimal.losses(model, minimal.draw(text, 64, data)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitor.step(step, lr=rate, tokens=64 * ranks * step, loss=loss)
        monitor.finish(60)  # on every rank: measures the last step
        if rank == 0:
            newest = monitor.latest()
            for quantizer in newest["quantization"]:
                print(f"{quantizer['method']}{quantizer['bits']}: E = {100 * quantizer['error_ratio']:.2f} %")
            print(newest["verdict"]["state"], newest["verdict"].get("summary", ""))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
