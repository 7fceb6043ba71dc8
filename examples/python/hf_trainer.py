"""Hugging Face's Trainer on a small Llama, with ptqwatch's callback:

    python examples/python/hf_trainer.py [--steps 600] [--every 100] [--run-dir runs/hf] [--output OUTPUT]

Needs transformers and accelerate: pip install '.[hf]'. E and the verdict are also in the Trainer's own log."""

import argparse
import pathlib

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from ptqwatch.hf import PtqwatchCallback

LENGTH = 64
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


class Sequences(torch.utils.data.Dataset):
    """Sequences of LENGTH bytes at random places, the same for the same seed."""

    def __init__(self, tokens, count, seed):
        self.tokens = tokens
        self.places = torch.randint(len(tokens) - LENGTH, (count,), generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.places)

    def __getitem__(self, index):
        ids = self.tokens[self.places[index]:self.places[index] + LENGTH]
        return {"input_ids": ids, "labels": ids}


def make_model():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=192, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4,
        max_position_embeddings=LENGTH, tie_word_embeddings=False))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--run-dir", default="runs/hf")
    parser.add_argument("--output", default="runs/hf/trainer")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # leaves a core to the monitor
    tokens = torch.tensor(list("".join(path.read_text() for path in sorted(DOCS.glob("*.md"))).encode()))
    split = len(tokens) * 9 // 10
    held_out = Sequences(tokens[split:], 256, seed=1)
    probe = [torch.stack([held_out[i]["input_ids"] for i in range(first, first + 16)]) for first in range(0, 256, 16)]
    batch = 8
    arguments = TrainingArguments(
        output_dir=args.output, max_steps=args.steps, per_device_train_batch_size=batch, learning_rate=3e-3, weight_decay=0.1,
        lr_scheduler_type="warmup_stable_decay", warmup_steps=20,
        lr_scheduler_kwargs={"num_decay_steps": args.steps // 4, "decay_type": "linear"}, logging_steps=args.every,
        save_strategy="no", report_to="none", use_cpu=not torch.cuda.is_available(), disable_tqdm=True)
    watch = PtqwatchCallback(build=make_model, losses="ptqwatch.losses:causal_lm", probe=probe, every=args.every,
                             run_dir=args.run_dir)
    trainer = Trainer(model=make_model(), args=arguments, train_dataset=Sequences(tokens[:split], args.steps * batch, seed=0),
                      callbacks=[watch])
    trainer.train()
    newest = watch.monitor.latest()
    print(newest["verdict"] if newest else f"nothing was measured: {watch.monitor.failure}")


if __name__ == "__main__":
    main()
