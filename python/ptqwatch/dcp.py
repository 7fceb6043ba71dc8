"""Converts checkpoints of torch.distributed.checkpoint (DCP) to safetensors, which `ptqwatch trajectory` measures.

    python -m ptqwatch.dcp outputs/checkpoint converted --config config.json --follow
    ptqwatch trajectory converted --follow ...

SOURCE is a checkpoint, which has .metadata and .distcp files, or a folder of such checkpoints, as step-1000. DEST gets a folder
of the same name for each, with model.safetensors and config.json; a checkpoint that is in DEST is not converted again. Tensors
are read one at a time, and the optimizer's not at all. Names of Hugging Face's models are kept. Those of torchtitan's Llama 3 and
Qwen 3 become Hugging Face's, with the rows of Llama's q_proj and k_proj in Hugging Face's order. config.json, which DCP does not
save, must say what was trained: also rope_theta, rope_scaling and rms_norm_eps.
"""

import argparse
import contextlib
import fcntl
import hashlib
import io
import json
import math
import os
import pathlib
import pickle
import re
import shutil
import signal
import sys
import time

import torch
from torch.distributed.checkpoint import DefaultLoadPlanner, FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from ptqwatch._shards import without_wrappers

_LOOK_SECONDS = 5
_WEIGHTS = "model.safetensors"
_TRAINER_STATE = "trainer_state.json"
_UNFINISHED = "tmp-dcp-"  # ptqwatch trajectory passes over names that begin with tmp
_ORIGIN = "ptqwatch_dcp"  # key in the metadata of the file
# accelerate, and so Hugging Face's Trainer, puts the weights into a folder of the checkpoint.
_ACCELERATE = "pytorch_model_fsdp_0"
_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
# First parts of names that trainers give to what is not the model.
_STATE = {"optimizer", "optimizers", "optim", "lr_scheduler", "lr_schedulers", "scheduler", "schedulers", "dataloader", "dataloaders",
          "train_state", "trainer", "rng", "rng_state", "step", "global_step", "epoch"}
# Names of the embedding, and the module of the model that has it. What stands before both is the prefix of all names.
_EMBEDDINGS = {"tok_embeddings.weight": "", "embed_tokens.weight": "model.", "embed_in.weight": "gpt_neox.", "wte.weight": "transformer."}
# torchtitan's names and Hugging Face's; those in a block without ".weight".
_OUTER = {"tok_embeddings.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight", "output.weight": "lm_head.weight",
          "lm_head.weight": "lm_head.weight"}
_BLOCK = {"attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "feed_forward.w1": "mlp.gate_proj",
          "feed_forward.w2": "mlp.down_proj", "feed_forward.w3": "mlp.up_proj", "attention.wo": "self_attn.o_proj",
          **{f"attention.{linear}w{part}": f"self_attn.{part}_proj" for part in "qkv" for linear in ("", "qkv_linear.")}}
_QWEN3_BLOCK = {f"attention.{part}_norm": f"self_attn.{part}_norm" for part in "qk"}
# Everything that a Metadata needs but data types.
_CLASSES = {("collections", "OrderedDict"), ("torch", "Size"), ("torch.serialization", "_get_layout"),
            ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
            *(("torch.distributed.checkpoint.metadata", name)
              for name in ("BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
                           "TensorStorageMetadata", "_MEM_FORMAT_ENCODING"))}


class _Refused(Exception):
    """Holds for every checkpoint: the command ends."""


class _Damaged(Exception):
    """Holds for one checkpoint, which may become complete."""


class _Unpickler(pickle.Unpickler):
    """Makes instances of a Metadata's classes and of no other."""

    def find_class(self, module, name):
        if module.startswith("pathlib") and name == "PosixPath":
            return pathlib.PosixPath  # of pathlib._local in Python 3.13
        if (module, name) in _CLASSES or module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no checkpoint needs and may run code")


def _metadata(path):
    """The Metadata of a .metadata file, and the file's bytes."""
    try:
        data = path.read_bytes()
        metadata = _Unpickler(io.BytesIO(data)).load()
    except Exception as error:  # a pickle that is cut short may raise nearly any
        raise _Damaged(f"cannot read {path}: {error}") from error
    if not isinstance(metadata, Metadata) or not isinstance(metadata.state_dict_metadata, dict) or not isinstance(metadata.storage_data, dict):
        raise _Damaged(f"{path} is not the metadata of a checkpoint")
    return metadata, data


def _some(names):
    names = sorted(names)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "") or "none"


def _model_keys(names, prefix, left_out):
    """{name without prefix and wrappers: key} of the model's tensors. If no prefix is given, it is what stands before the embedding."""
    others = _STATE | set(left_out)
    if prefix is None:
        ends = [base + name for name, base in _EMBEDDINGS.items()]
        found = [(name, end) for name in names for end in ends if f".{name}".endswith(f".{end}") and name.split(".")[0] not in others]
        if len(found) != 1:
            what = f"several embeddings: {_some(name for name, _ in found)}" if found else f"no embedding ({', '.join(ends)}): {_some(names)}"
            raise _Refused(f"among the tensors there is {what}; --prefix PREFIX says what the names of the model's begin with, "
                           "--leave-out NAME what those of others do")
        prefix = found[0][0].removesuffix(found[0][1])
    elif not any(name.startswith(prefix) and name.endswith(tuple(_EMBEDDINGS)) for name in names):
        raise _Refused(f"--prefix {prefix!r}: no embedding ({', '.join(_EMBEDDINGS)}) has a name that begins so; there are {_some(names)}")
    keys = {}
    for key in names:
        name = without_wrappers(key.removeprefix(prefix))
        if not key.startswith(prefix) or name.split(".")[0] in others:
            continue
        if name in keys:
            raise _Refused(f"tensors {keys[name]} and {key} are both {name}; --prefix PREFIX selects one")
        keys[name] = key
    return keys


def _in_halves(weight, heads):
    """The rows of each head's even elements, then those of its odd ones."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def _converted(keys, config, sizes):
    """{Hugging Face's name: (key, heads by which the rows are permuted or 0)}."""
    if "tok_embeddings.weight" not in keys:
        return {name: (key, 0) for name, key in keys.items()}
    model_type = config.get("model_type")
    if model_type not in ("llama", "qwen3"):
        raise _Refused(f"the names are torchtitan's, which are known of Llama 3 and Qwen 3, and config.json has the model_type {model_type!r}")
    heads = config.get("num_attention_heads"), config.get("num_key_value_heads") or config.get("num_attention_heads")
    if not all(isinstance(count, int) and count > 0 for count in heads):
        raise _Refused(f"config.json: num_attention_heads and num_key_value_heads are {heads}; they must be numbers from 1 on")
    # Llama's positions rotate neighbouring elements of a head in torchtitan, and the two halves in Hugging Face's model. Qwen 3's rotate halves in both.
    heads = dict(zip(("self_attn.q_proj", "self_attn.k_proj"), heads)) if model_type == "llama" else {}
    parts = _BLOCK | (_QWEN3_BLOCK if model_type == "qwen3" else {})
    converted, unknown = {}, []
    for name, key in keys.items():
        block = re.fullmatch(r"layers\.(\d+)\.(.+)\.weight", name)
        part = parts.get(block[2]) if block else _OUTER.get(name)
        if part is None:
            if name != "freqs_cis":  # a buffer of early versions, which config.json gives
                unknown.append(key)
            continue
        new = f"model.layers.{block[1]}.{part}.weight" if block else part
        if new in converted:
            raise _Refused(f"tensors {converted[new][0]} and {key} are both {new}")
        converted[new] = key, heads.get(part, 0)
        if part in heads and (len(sizes[key]) != 2 or sizes[key][0] % (2 * heads[part])):
            raise _Refused(f"tensor {key} is {list(sizes[key])}, which is not {heads[part]} heads of an even size, as config.json says")
    if unknown:
        raise _Refused(f"torchtitan's {model_type} has no {_some(unknown)}; --prefix PREFIX says what the names of the model's begin with, "
                       "--leave-out NAME what those of others do")
    return converted


class _Tensors:
    """The tensors of a checkpoint. `entries` has the TensorStorageMetadata of each."""

    def __init__(self, folder, metadata):
        self.entries = {key: entry for key, entry in metadata.state_dict_metadata.items() if isinstance(entry, TensorStorageMetadata)}
        self._folder = folder
        self._metadata = metadata
        self._reader = FileSystemReader(folder)
        self._reader.set_up_storage_reader(metadata, True)

    def check(self, keys):
        """Raises unless the files are there and the parts of each tensor make up the whole."""
        ends = {}
        for index, info in self._metadata.storage_data.items():
            if index.fqn in keys:
                ends[info.relative_path] = max(ends.get(info.relative_path, 0), info.offset + info.length)
        for file, end in ends.items():
            if os.path.basename(file) != file:
                raise _Damaged(f"its .metadata names the file {file!r}, which is not in its folder")
            size = (self._folder / file).stat().st_size if (self._folder / file).exists() else 0
            if size < end:
                raise _Damaged(f"{self._folder / file} is missing or cut short: {size:,} bytes instead of {end:,}")
        for key in keys:
            entry = self.entries[key]
            inside = all(0 <= begin and begin + count <= whole for part in entry.chunks for begin, count, whole in zip(part.offsets, part.sizes, entry.size))
            if not inside or sum(math.prod(part.sizes) for part in entry.chunks) != math.prod(entry.size):
                raise _Damaged(f"the parts of tensor {key} in .metadata do not make up the whole of {list(entry.size)}")
            if entry.properties.dtype not in _DTYPES:
                raise _Refused(f"{self._folder}: tensor {key} is {entry.properties.dtype}; only {_some(map(str, _DTYPES))} are converted")

    def read(self, key, heads):
        """A tensor, with the rows of so many heads permuted unless they are 0."""
        tensor = torch.empty(self.entries[key].size, dtype=self.entries[key].properties.dtype)
        try:
            planner = DefaultLoadPlanner(flatten_state_dict=False)
            planner.set_up_planner({key: tensor}, self._metadata, True)
            self._reader.read_data(planner.finish_plan(planner.create_local_plan()), planner).wait()
        except Exception as error:  # damaged data may raise nearly any
            raise _Damaged(f"cannot read tensor {key} in {self._folder}: {type(error).__name__}: {error}") from error
        return _in_halves(tensor, heads) if heads else tensor


def _write(path, named, tensors, origin):
    """Writes a file of safetensors, tensor by tensor. Returns the bytes of these."""
    header, end = {"__metadata__": {"format": "pt", _ORIGIN: origin}}, 0
    dtypes = {name: tensors.entries[key].properties.dtype for name, (key, _) in named.items()}
    order = sorted(named, key=lambda name: (-dtypes[name].itemsize, name))  # so that each is aligned
    for name in order:
        size = tensors.entries[named[name][0]].size
        begin, end = end, end + math.prod(size) * dtypes[name].itemsize
        header[name] = {"dtype": _DTYPES[dtypes[name]], "shape": list(size), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(tensors.read(*named[name]).reshape(-1).view(torch.uint8).numpy())  # keeps no tensor while the next is read
        file.flush()
        os.fsync(file.fileno())
    return end


def _origin_of(path):
    """What _write wrote into a file's header; None of another file."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"].get(_ORIGIN)
    except (OSError, ValueError, KeyError, AttributeError, OverflowError, MemoryError):
        return None


def _convert(checkpoint, folder, dest, args):
    """Converts one checkpoint, whose files are in `folder`, unless it is in `dest`."""
    if (folder / "common.pt").exists():
        raise _Refused(f"{folder} is a checkpoint of Megatron-LM; Megatron-Bridge's export_ckpt converts it to the format of Hugging Face")
    start, target, unfinished = time.monotonic(), dest / checkpoint.name, dest / (_UNFINISHED + checkpoint.name)
    metadata, data = _metadata(folder / ".metadata")
    config_path = args.config or checkpoint / "config.json"
    try:
        config_data = config_path.read_bytes()
        config = dict(json.loads(config_data))
    except (OSError, ValueError, TypeError) as error:
        raise _Refused(f"cannot read {config_path}: {error}; --config FILE names the model's config.json") from error
    origin = hashlib.sha256(repr((data, config_data, args.prefix, sorted(args.leave_out))).encode()).hexdigest()
    if target.exists():
        if _origin_of(target / _WEIGHTS) != origin:
            raise _Refused(f"{target} was not made from {checkpoint} as it is now, with this config.json and these options; remove it or name another DEST")
        print(f"{checkpoint.name}: converted already", flush=True)
        return
    tensors = _Tensors(folder, metadata)
    named = _converted(_model_keys(tensors.entries, args.prefix, args.leave_out), config, {key: entry.size for key, entry in tensors.entries.items()})
    tensors.check({key for key, _ in named.values()})
    unfinished.mkdir()
    try:
        size = _write(unfinished / _WEIGHTS, named, tensors, origin)
        (unfinished / "config.json").write_bytes(config_data)
        if (checkpoint / _TRAINER_STATE).exists():  # it has the learning rates
            shutil.copyfile(checkpoint / _TRAINER_STATE, unfinished / _TRAINER_STATE)
        if (folder / ".metadata").read_bytes() != data:
            raise _Damaged("it was written anew meanwhile")
        unfinished.rename(target)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    seconds = max(time.monotonic() - start, 1e-3)
    print(f"{checkpoint.name}: {len(named)} tensors, {size / 1e6:,.1f} MB in {seconds:.1f} s ({size / 1e6 / seconds:,.0f} MB/s); "
          f"{len(metadata.state_dict_metadata) - len(named)} other entries left out", flush=True)


def _step(name):
    """The step in a checkpoint's name, as ptqwatch trajectory finds it (ParseCheckpointName); -1 if there is none."""
    found = re.fullmatch(r"(?:.+[-_])?(?:global_step|step|checkpoint|ckpt|iter)[-_]?(\d{1,18})(?:[-_]tokens\d+(?:\.\d+)?[KMBT]?)?", name)
    return int(found[1]) if found and not name.startswith("tmp") else -1


def _files_of(checkpoint, follow):
    """The folder with a checkpoint's .metadata, which DCP writes last; None if there is none."""
    for folder in (checkpoint, checkpoint / _ACCELERATE):
        if (folder / ".metadata").exists():
            # Hugging Face's Trainer writes trainer_state.json after the weights.
            waits = follow and folder != checkpoint and checkpoint.name.startswith("checkpoint-") and not (checkpoint / _TRAINER_STATE).exists()
            return None if waits else folder
    return None


def _complete(source, follow):
    """[(checkpoint, folder of its files)] by step."""
    if folder := _files_of(source, follow):
        return [(source, folder)]
    names = sorted((name for name in (os.listdir(source) if source.is_dir() else ()) if _step(name) >= 0), key=lambda name: (_step(name), name))
    return [(source / name, folder) for name in names if (folder := _files_of(source / name, follow))]


def _state_of(folder):
    """Changes if the files do."""
    try:
        return sorted((entry.name, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in os.scandir(folder))
    except OSError:
        return None


@contextlib.contextmanager
def _only_one(dest):
    """Makes the folder, in which no other process may convert meanwhile, and removes what a killed one has left there."""
    dest.mkdir(parents=True, exist_ok=True)
    handle = os.open(dest, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _Refused(f"another process converts to {dest}") from error
        except OSError:
            pass  # a file system without locks
        for left in dest.glob(_UNFINISHED + "*"):
            shutil.rmtree(left)
        yield
    finally:
        os.close(handle)


def _look(source, dest, args, done, failed):
    """Converts what is new. `done` holds names, `failed` the state in which a checkpoint failed by name."""
    for checkpoint, folder in _complete(source, args.follow):
        state = _state_of(folder)
        if checkpoint.name in done or failed.get(checkpoint.name) == state:
            continue
        try:
            _convert(checkpoint, folder, dest, args)
            done.add(checkpoint.name)
            failed.pop(checkpoint.name, None)
        except (_Damaged, _Refused, OSError) as error:
            removed = not (folder / ".metadata").exists()
            if not removed and not isinstance(error, _Damaged):
                raise
            if not removed:
                failed[checkpoint.name] = state
            print(f"{checkpoint.name} is left out: {'it was removed meanwhile' if removed else error}", file=sys.stderr, flush=True)


def _run(args):
    source, dest = (pathlib.Path(path).absolute() for path in (args.source, args.dest))
    if dest.resolve().is_relative_to(source.resolve()):
        raise _Refused(f"DEST {args.dest} lies in SOURCE {args.source}")
    if not _complete(source, False):
        lacks = f"{args.source} has no .metadata, and no folders that have one and a step in their name, such as step-1000"
        if not args.follow:
            raise _Refused(lacks)
        print(lacks, "yet", flush=True)
    done, failed = set(), {}
    with _only_one(dest):
        while True:
            _look(source, dest, args, done, failed)
            if not args.follow:
                return 1 if failed else 0
            if args.until is not None and any(_step(name) >= args.until for name in done):
                return 0
            time.sleep(_LOOK_SECONDS)


def _parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m ptqwatch.dcp", description=__doc__, epilog="Exit status: 0; 1 if a checkpoint could not be converted; "
                                     "2 for wrong arguments; 130 after Ctrl-C, or 0 with --follow.", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="SOURCE", help="a checkpoint, or a folder of them")
    parser.add_argument("dest", metavar="DEST", help="a folder, which is made")
    parser.add_argument("--config", type=pathlib.Path, metavar="FILE", help="the model's config.json; by default the one in each checkpoint")
    parser.add_argument("--prefix", type=lambda text: text and text.rstrip(".") + ".",
                        help="what the names of the model's tensors begin with, such as model.; by default found by the embedding")
    parser.add_argument("--leave-out", action="append", default=[], metavar="NAME",
                        help="first part of the names of other tensors, such as ema; repeatable. Optimizer states are left out anyway")
    parser.add_argument("--follow", action="store_true", help=f"look for new checkpoints every {_LOOK_SECONDS} seconds, until Ctrl-C")
    parser.add_argument("--until", type=int, metavar="STEP", help="with --follow: end once a checkpoint of this step or a later one is converted")
    args = parser.parse_args(arguments)
    if args.until is not None and not args.follow:
        parser.error("--until needs --follow")
    return args


def main(arguments=None):
    args = _parse(arguments)
    try:
        return _run(args)
    except KeyboardInterrupt:
        return 0 if args.follow else 130
    except (_Refused, OSError) as error:
        print(f"ptqwatch.dcp: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
