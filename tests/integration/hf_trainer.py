#!/usr/bin/env python3
"""Trains a small Llama, or with --experts a small OLMoE, on characters with Hugging Face's Trainer, a checkpoint every so many steps:

    hf_trainer.py --text bible.txt --output DIR [--steps 4000] [--every 100] [--seed 0] [--rate 1e-2] [--decay 0.25]
        [--width 64] [--layers 3] [--weight-decay 0.1] [--experts 0]

The rate warms up, stays, and falls linearly to 0 over the last share --decay. DIR/probe.bin and DIR/calibration.bin hold tokens of the last
tenth of the text, uint16, and DIR/checkpoint-* what `ptqwatch trajectory` reads. Needs transformers and accelerate (requirements/python-quantize.txt)."""

import argparse
import os

import numpy
import torch
from transformers import LlamaConfig, LlamaForCausalLM, OlmoeConfig, OlmoeForCausalLM, Trainer, TrainingArguments

LENGTH = 64


class Sequences(torch.utils.data.Dataset):
    """Sequences of LENGTH tokens at random places, the same for the same seed."""

    def __init__(self, tokens, count, seed):
        self.tokens = tokens
        self.places = numpy.random.default_rng(seed).integers(0, len(tokens) - LENGTH, count)

    def __len__(self):
        return len(self.places)

    def __getitem__(self, index):
        ids = torch.from_numpy(self.tokens[self.places[index]:self.places[index] + LENGTH])
        return {"input_ids": ids, "labels": ids}


def make_model(args, vocabulary):
    sizes = dict(vocab_size=vocabulary, hidden_size=args.width, num_hidden_layers=args.layers, num_attention_heads=4, num_key_value_heads=4,
                 max_position_embeddings=LENGTH, tie_word_embeddings=False)
    if args.experts == 0:
        return LlamaForCausalLM(LlamaConfig(intermediate_size=3 * args.width, **sizes))
    return OlmoeForCausalLM(OlmoeConfig(intermediate_size=args.width, num_experts=args.experts, num_experts_per_tok=2, output_router_logits=True,
                                        pad_token_id=None, bos_token_id=None, eos_token_id=None, **sizes))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=1e-2)
    parser.add_argument("--decay", type=float, default=0.25)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--experts", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with open(args.text, "rb") as file:
        text = numpy.frombuffer(file.read(), dtype=numpy.uint8)
    vocabulary, tokens = numpy.unique(text, return_inverse=True)
    tokens = tokens.astype(numpy.int64)
    train, held_out = tokens[:len(tokens) * 9 // 10], tokens[len(tokens) * 9 // 10:]
    os.makedirs(args.output, exist_ok=True)
    for name, part in (("probe", held_out[:512 * LENGTH + 1]), ("calibration", held_out[-(128 * LENGTH + 1):])):
        part.astype(numpy.uint16).tofile(os.path.join(args.output, f"{name}.bin"))
    torch.manual_seed(args.seed)
    model = make_model(args, len(vocabulary))
    batch = 8
    decay = int(args.decay * args.steps)
    arguments = TrainingArguments(
        output_dir=args.output, max_steps=args.steps, per_device_train_batch_size=batch, learning_rate=args.rate,
        weight_decay=args.weight_decay,
        lr_scheduler_type="warmup_stable_decay", warmup_steps=args.steps // 40,
        lr_scheduler_kwargs={"num_decay_steps": decay, "decay_type": "linear", "min_lr_ratio": 0.0},
        save_steps=args.every, save_only_model=True, logging_steps=args.every, include_num_input_tokens_seen="all", seed=args.seed,
        use_cpu=True, report_to=[], disable_tqdm=True, dataloader_num_workers=0)
    Trainer(model=model, args=arguments, train_dataset=Sequences(train, batch * args.steps, args.seed)).train()


if __name__ == "__main__":
    main()
