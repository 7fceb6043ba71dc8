"""Runs Parameter Golf's train_gpt.py (github.com/openai/parameter-golf) with ptqwatch beside it, on a CPU if there is no GPU.

    python examples/python/parameter_golf.py OUT --trainer train_gpt.py [--text FILE]    trains a copy that has the lines of ADDED
    python examples/python/parameter_golf.py OUT --compare                               its int8 export beside ptqwatch's quantizers

Settings are environment variables, as train_gpt.py has them. With --text the tokens are those of a file, in shards and with a
tokenizer that are made in OUT; otherwise DATA_PATH and TOKENIZER_PATH say where they are. docs/parameter_golf.md explains it."""

import argparse
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import torch

# (a line of train_gpt.py, as an expression; lines that go before it)
ADDED = [
    (r"class Hyperparameters", '''
import ptqwatch


def sequence_losses(model, batch):  # nats, one for each sequence: train_gpt.py's model returns the mean
    x, y = batch
    return torch.stack([model(a[None], b[None]) for a, b in zip(x, y)])


def probe_batches(args, val_tokens, sequences=16):
    tokens = val_tokens[: sequences * args.train_seq_len + 1].long()
    return [*zip(*(part.view(-1, 4, args.train_seq_len) for part in (tokens[:-1], tokens[1:])))]


'''),
    (r" +training_time_ms = 0\.0", '''    monitor = ptqwatch.watch(base_model, losses=sequence_losses, probe=probe_batches(args, val_tokens), every=50,
                             run_dir=f"runs/{args.run_id}", layers={"output_head": True}, quantizers=["rtn8", "gptq4", "rtn4"])
    print(monitor.describe())
'''),
    (r" +approx_training_time_ms = ", "        monitor.step(step, lr=args.matrix_lr * scale, tokens=step * args.train_batch_tokens, loss=train_loss)\n"),
    (r" +if master_process:\n +torch\.save\(", "    monitor.finish(600)\n"),
]
# For a CPU: (expression, what takes its place)
CPU = [
    (r"(?m)^ *torch\.cuda\.(synchronize|set_device|manual_seed_all)\(.*\)\n", ""),
    (r'device_type="cuda"', 'device_type="cpu"'),
    (r'torch\.device\("cuda", local_rank\)', 'torch.device("cpu")'),
    (r"not torch\.cuda\.is_available\(\)", "False"),
    (r"enable_math_sdp\(False\)", "enable_math_sdp(True)"),
    (r"torch\.compile\((\w+)[^)]*\)", r"\1"),
    (r'"nvidia-smi"', '"true"'),
]


def with_added_lines(source):
    for line, added in ADDED:
        places = [*re.finditer(rf"(?m)^{line}", source)]
        if not places:
            sys.exit(f"train_gpt.py has no line like {line!r}: add by hand\n{added}")
        at = places[0].start()
        source = source[:at] + added + source[at:]
    return source


def for_cpu(source):
    for old, new in CPU:
        source = re.sub(old, new, source)
    return source


def write_tokens(text, folder):
    """A tokenizer, and shards of uint16 tokens behind a header of 256 numbers, as train_gpt.py reads them."""
    import numpy
    import sentencepiece

    folder.mkdir(parents=True, exist_ok=True)
    words = text.read_text()
    cut = words.rindex("\n", 0, len(words) * 19 // 20) + 1
    model = str(folder / "tokenizer")
    size = int(os.environ.get("VOCAB_SIZE", 1024))
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(words[:cut].splitlines()), model_prefix=model, vocab_size=size,
                                             model_type="bpe", byte_fallback=True, minloglevel=2)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=model + ".model")
    for name, part in (("train", words[:cut]), ("val", words[cut:])):
        tokens = numpy.array(tokenizer.encode(part), dtype="<u2")
        header = numpy.zeros(256, dtype="<i4")
        header[:3] = 20240520, 1, len(tokens)
        (folder / f"fineweb_{name}_000000.bin").write_bytes(header.tobytes() + tokens.tobytes())


def imported(path):
    spec = importlib.util.spec_from_file_location("watched_gpt", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(trainer, folder):
    """The loss on the probe batches: of the trained weights, of train_gpt.py's own export, and as ptqwatch quantizes."""
    import ptqwatch

    args, weights = trainer.Hyperparameters(), torch.load(folder / "final_model.pt", map_location="cpu")
    shape = ("vocab_size", "num_layers", "model_dim", "num_heads", "num_kv_heads", "mlp_mult", "tie_embeddings", "tied_embed_init_std",
             "logit_softcap", "rope_base", "qk_gain_init")
    model = trainer.GPT(**{name: getattr(args, name) for name in shape}).bfloat16().eval()  # buffers, too, as train_gpt.py has them
    for name, parameter in model.named_parameters():  # each in its own type
        parameter.data = weights[name].clone()
    batches = trainer.probe_batches(args, trainer.load_validation_tokens(args.val_files, args.train_seq_len))

    def loss():
        with torch.no_grad():
            return torch.cat([trainer.sequence_losses(model, batch).double() for batch in batches]).mean().item()

    exact = loss()
    exported, _ = trainer.quantize_state_dict_int8(weights)
    print(f"trained weights {exact:.7f} nats")
    model.load_state_dict(trainer.dequantize_state_dict_int8(exported))
    print(f"train_gpt.py's int8 {loss() - exact:+.7f}, of {len(exported['quantized'])} tensors")
    rows = {"method": "rtn", "bits": 8, "group_size": -1, "scale_dtype": "f16"}
    exports = {**rows, "narrow_range": True, "clip": "percentile", "clip_value": 99.99984, "round_scale_last": True, "min_scale": 1 / 127}
    for quantizer in ("rtn8", rows, exports, "gptq4", "rtn4"):
        model.load_state_dict(weights)
        quantized, = ptqwatch.quantize_model(model, trainer.sequence_losses, batches, [quantizer], output_head=True)
        quantized.load_into(model)
        same = set(quantized.layers) == set(exported["quantized"])
        print(f"{quantized.quantizer} {loss() - exact:+.7f}, of {len(quantized.layers)} tensors{', the same ones' if same else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="folder for the copy and all that it writes")
    parser.add_argument("--trainer", type=pathlib.Path, help="train_gpt.py")
    parser.add_argument("--text", type=pathlib.Path, help="a file whose tokens take the place of the data set's")
    parser.add_argument("--compare", action="store_true", help="after a run, with the same settings")
    args = parser.parse_args()
    out = args.out.resolve()
    if args.text:
        write_tokens(args.text, out / "data")
    if (out / "data").exists():
        os.environ.update(DATA_PATH=str(out / "data"), TOKENIZER_PATH=str(out / "data" / "tokenizer.model"))
    if args.compare:
        return compare(imported(out / "train_gpt.py"), out)
    if not args.trainer:
        parser.error("--trainer: where is train_gpt.py?")
    out.mkdir(parents=True, exist_ok=True)
    source = with_added_lines(args.trainer.read_text())
    (out / "train_gpt.py").write_text(source if torch.cuda.is_available() else for_cpu(source))
    return subprocess.run([sys.executable, "train_gpt.py"], cwd=out).returncode


if __name__ == "__main__":
    sys.exit(main())
