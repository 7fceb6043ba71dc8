#!/usr/bin/env python3
"""Reads the output of quantize_checkpoint by compressed-tensors and torchao from PyPI and by this file's own reader: checkpoint_test.py
QUANTIZE_CHECKPOINT GROUP [unittest arguments]

GROUP is Program, which needs only Python, CompressedTensors or Formats. Exits with 77 ("skipped") if the PyTorch installed by ./setup cannot be
imported: without CUDA on the machine, only its C++ libraries are complete."""

import json
import os
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import unittest

from setup_packages import CACHE, torch_folders

SKIPPED = 77
PROGRAM = None
TIMEOUT = 120


def save(path, tensors):
    """tensors: name -> (dtype, shape, bytes)"""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def load(path):
    with open(path, "rb") as file:
        content = file.read()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    begin = 8 + length
    return {name: (entry["dtype"], entry["shape"], content[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]])
            for name, entry in header.items()}


def floats(count, seed, scale=1.0):
    numbers = random.Random(seed)
    return struct.pack(f"<{count}f", *(numbers.gauss(0, scale) for _ in range(count)))


SHAPES = {"model.layers.0.attn.q_proj": (64, 128), "model.layers.0.attn.k_proj": (32, 128), "model.layers.0.mlp.down": (96, 64)}
TOKENS = 200


class Folder:
    """A small checkpoint and inputs for its layers."""

    def __init__(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.path = self.temporary.name
        self.weights, self.inputs = self.file("model.safetensors"), self.file("inputs.safetensors")
        tensors = {f"{name}.weight": ("F32", list(shape), floats(shape[0] * shape[1], i, 0.02))
                   for i, (name, shape) in enumerate(SHAPES.items())}
        tensors["model.embed.weight"] = ("F32", [10, 16], floats(160, 10))
        tensors["model.norm.weight"] = ("F32", [16], floats(16, 11))
        save(self.weights, tensors)
        save(self.inputs, {"model.layers.0.attn.q_proj": ("F32", [TOKENS, 128], floats(TOKENS * 128, 12)),
                           "model.layers.0.mlp.down.weight": ("F32", [2, TOKENS // 2, 64], floats(TOKENS * 64, 13))})
        with open(self.file("config.json"), "w") as file:
            json.dump({"model_type": "toy"}, file)

    def file(self, *names):
        return os.path.join(self.path, *names)

    def command(self, *flags, out="out"):
        return [PROGRAM, "--weights", self.weights, "--inputs", self.inputs, "--out", self.file(out), "--group-size", "32",
                "--input-map", "*.k_proj=*.q_proj", *flags]

    def quantize(self, *flags, out="out"):
        return subprocess.run(self.command(*flags, out=out), capture_output=True, text=True, timeout=TIMEOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.temporary.cleanup()


def half(content):
    return struct.unpack(f"<{len(content) // 2}e", content)


def stream(words, bits, count):
    """The numbers of a dense stream of 32-bit words."""
    number = sum(word << (32 * i) for i, word in enumerate(words))
    return [number >> (bits * i) & ((1 << bits) - 1) for i in range(count)]


def decode_gptq(tensors, module, bits):
    """Decodes the weight row by row, from the definition of the format."""
    (words, rows), packed = tensors[f"{module}.qweight"][1:]
    packed = struct.unpack(f"<{words * rows}I", packed)
    cols = tensors[f"{module}.g_idx"][1][0]
    group_of = struct.unpack(f"<{cols}i", tensors[f"{module}.g_idx"][2])
    groups = tensors[f"{module}.scales"][1][0]
    scales = half(tensors[f"{module}.scales"][2])
    zero_words = tensors[f"{module}.qzeros"][1][1]
    zero_content = struct.unpack(f"<{groups * zero_words}I", tensors[f"{module}.qzeros"][2])
    zeros = [stream(zero_content[g * zero_words:(g + 1) * zero_words], bits, rows) for g in range(groups)]
    weight = []
    for row in range(rows):
        codes = stream(packed[row::rows], bits, cols)
        weight.append([scales[group_of[c] * rows + row] * (codes[c] - zeros[group_of[c]][row]) for c in range(cols)])
    return weight


def decode_compressed(tensors, module, bits, symmetric):
    rows, cols = struct.unpack("<2q", tensors[f"{module}.weight_shape"][2])
    words = tensors[f"{module}.weight_packed"][1][1]
    packed = struct.unpack(f"<{rows * words}I", tensors[f"{module}.weight_packed"][2])
    groups = tensors[f"{module}.weight_scale"][1][1]
    scales = half(tensors[f"{module}.weight_scale"][2])
    zeros = [[1 << (bits - 1)] * rows for _ in range(groups)]
    if not symmetric:
        content = tensors[f"{module}.weight_zero_point"][2]
        content = struct.unpack(f"<{len(content) // 4}I", content)
        zeros = [stream(content[g::groups], bits, rows) for g in range(groups)]
    size = cols // groups
    weight = []
    for row in range(rows):
        codes = stream(packed[row * words:(row + 1) * words], bits, cols)
        weight.append([scales[row * groups + c // size] * (codes[c] - zeros[c // size][row]) for c in range(cols)])
    return weight


class Program(unittest.TestCase):
    def test_both_formats_hold_the_same_weight(self):
        with Folder() as folder:
            for bits, symmetric in ((2, "on"), (3, "off"), (4, "off"), (4, "on"), (8, "off")):
                flags = ("--bits", str(bits), "--symmetric", symmetric, "--force")
                for out, form in (("ct", "compressed-tensors"), ("gptq", "gptq-v2")):
                    done = folder.quantize("--format", form, *flags, out=out)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(done.stderr.count("layer "), len(SHAPES))
                    self.assertEqual(sorted(os.listdir(folder.file(out))), ["config.json", "model.safetensors"])
                one, other = (load(folder.file(out, "model.safetensors")) for out in ("ct", "gptq"))
                for module, (rows, cols) in SHAPES.items():
                    weight = decode_compressed(one, module, bits, symmetric == "on")
                    self.assertEqual((len(weight), len(weight[0])), (rows, cols))
                    self.assertEqual(weight, decode_gptq(other, module, bits))
                    original = struct.unpack(f"<{rows * cols}f", load(folder.weights)[f"{module}.weight"][2])
                    squares = sum(x * x for x in original)
                    errors = sum((x - y) ** 2 for x, y in zip(original, (y for row in weight for y in row)))
                    self.assertLess(errors / squares, {2: 1, 3: 0.2, 4: 0.05, 8: 2e-4}[bits])
                for name in ("model.embed.weight", "model.norm.weight"):
                    self.assertEqual(one[name], load(folder.weights)[name])

    def test_an_override_gives_layers_other_bits(self):
        with Folder() as folder:
            bits = {module: 8 if ".mlp." in module else 3 for module in SHAPES}
            for form in ("compressed-tensors", "gptq-v2"):
                for out, flags in (("three", ("--bits", "3")), ("eight", ("--bits", "8")), ("mixed", ("--bits", "3", "--override", "*.mlp.*=8"))):
                    done = folder.quantize("--format", form, "--force", *flags, out=out)
                    self.assertEqual(done.returncode, 0, done.stderr)
                three, eight, mixed = (load(folder.file(out, "model.safetensors")) for out in ("three", "eight", "mixed"))
                for name, tensor in mixed.items():
                    self.assertEqual(tensor, (eight if ".mlp." in name else three)[name])
                with open(folder.file("mixed", "config.json")) as file:
                    config = json.load(file)["quantization_config"]
                if form == "gptq-v2":
                    self.assertEqual({pattern: entry.get("bits") for pattern, entry in config["dynamic"].items()},
                                     {"+:^model\\.layers\\.0\\.mlp\\.down$": 8, "-:^model\\.embed$": None})
                    continue
                groups = {group["weights"]["num_bits"]: group["targets"] for group in config["config_groups"].values()}
                self.assertEqual(groups, {3: ["Linear"], 8: [module for module in SHAPES if bits[module] == 8]})
            for text, *parts in (("*.mlp.*", "LAYER=BITS"), ("*.mlp.*=9", "bits is 9"), ("=4", "LAYER=BITS"), ("*.mlp.*=x", "LAYER=BITS")):
                done = folder.quantize("--override", text, "--force")
                self.assertEqual(done.returncode, 2)
                for part in ("--override", text, *parts):
                    self.assertIn(part, done.stderr)
            done = folder.quantize("--format", "gptq-v2", "--override", "*=6", "--force")
            self.assertEqual(done.returncode, 2)
            self.assertIn("bits 6: gptq-v2 holds 2, 3, 4 or 8", done.stderr)

    def test_ranges_by_rule_are_stored(self):
        with Folder() as folder:
            flags = ("--bits", "6", "--group-size", "-1", "--narrow-range", "on", "--clip", "std", "--clip-value", "12.85", "--method", "gptq")
            done = folder.quantize(*flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("gptq b6 g-1 sym narrow act damp 0.01 clip std 12.85 scale f16", done.stdout)
            tensors = load(folder.file("out", "model.safetensors"))
            for module, (rows, cols) in SHAPES.items():
                original = struct.unpack(f"<{rows * cols}f", load(folder.weights)[f"{module}.weight"][2])
                for row, scale in enumerate(half(tensors[f"{module}.weight_scale"][2])):
                    self.assertAlmostEqual(scale * 31 / 12.85 / statistics.stdev(original[row * cols:(row + 1) * cols]), 1, delta=2**-10)
                words = tensors[f"{module}.weight_packed"][1][1]
                packed = struct.unpack(f"<{rows * words}I", tensors[f"{module}.weight_packed"][2])
                self.assertGreaterEqual(min(min(stream(packed[row * words:(row + 1) * words], 6, cols)) for row in range(rows)), 1)
            done = folder.quantize("--clip", "percentile", "--force")
            self.assertEqual(done.returncode, 2)
            self.assertIn("--clip-value is 0; it must be above 0 and at most 100 for clip percentile", done.stderr)

    def test_configs_are_taken_over_and_extended(self):
        with Folder() as folder:
            self.assertEqual(folder.quantize("--format", "gptq-v2").returncode, 0)
            with open(folder.file("out", "config.json")) as file:
                config = json.load(file)
            self.assertEqual(config["model_type"], "toy")
            self.assertEqual(config["quantization_config"]["checkpoint_format"], "gptq_v2")
            # A quantized file is not quantized again.
            again = subprocess.run([PROGRAM, "--weights", folder.file("out", "model.safetensors"), "--method", "rtn", "--layers", "*",
                                    "--out", folder.file("again")], capture_output=True, text=True, timeout=TIMEOUT)
            self.assertEqual(again.returncode, 2)
            self.assertIn("already quantized", again.stderr)

    def test_threads_do_not_change_a_byte(self):
        with Folder() as folder:
            for out, threads in (("one", "1"), ("three", "3")):
                self.assertEqual(folder.quantize("--threads", threads, out=out).returncode, 0)
            contents = []
            for out in ("one", "three"):
                with open(folder.file(out, "model.safetensors"), "rb") as file:
                    contents.append(file.read())
            self.assertEqual(*contents)

    def test_rtn_needs_no_inputs(self):
        with Folder() as folder:
            done = subprocess.run([PROGRAM, "--weights", folder.weights, "--method", "rtn", "--layers", "*.mlp.*", "--group-size", "32",
                                   "--out", folder.file("out")], capture_output=True, text=True, timeout=TIMEOUT)
            self.assertEqual(done.returncode, 0, done.stderr)
            names = load(folder.file("out", "model.safetensors"))
            self.assertIn("model.layers.0.mlp.down.weight_packed", names)
            self.assertIn("model.layers.0.attn.q_proj.weight", names)

    def test_a_layer_that_cannot_be_quantized_is_copied_and_named(self):
        with Folder() as folder:
            tensors = load(folder.weights)
            dtype, shape, content = tensors["model.layers.0.mlp.down.weight"]
            tensors["model.layers.0.mlp.down.weight"] = (dtype, shape, struct.pack("<f", float("nan")) + content[4:])
            save(folder.weights, tensors)
            done = folder.quantize()
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("nonfinite", done.stderr)
            written = load(folder.file("out", "model.safetensors"))
            self.assertEqual(written["model.layers.0.mlp.down.weight"], tensors["model.layers.0.mlp.down.weight"])
            with open(folder.file("out", "config.json")) as file:
                self.assertIn("model.layers.0.mlp.down", json.load(file)["quantization_config"]["ignore"])

    def test_mistakes_name_the_option_and_change_nothing(self):
        with Folder() as folder:
            before = sorted(os.listdir(folder.path))
            for flags, words in ((("--bits", "9"), ("--bits", "9")),
                                 (("--method", "awq"), ("--format", "awq", "folded")),
                                 (("--method", "magic"), ("--method", "magic")),
                                 (("--scale-dtype", "f32"), ("--format", "f32")),
                                 (("--scale-dtype", "bf16", "--format", "gptq-v2"), ("gptq-v2", "bf16")),
                                 (("--group-size", "48"), ("48", "--exclude")),
                                 (("--damp", "nan"), ("--damp", "nan")),
                                 (("--order", "up"), ("--order", "up")),
                                 (("--threads", "0"), ("--threads", "0")),
                                 (("--format", "gguf"), ("--format", "gguf")),
                                 (("--layers", "nothing*"), ("--layers", "nothing*")),
                                 (("--input-map", "a"), ("--input-map", "'a'")),
                                 (("--weights", "/nowhere"), ("--weights", "/nowhere")),
                                 (("--weights", folder.file("config.json")), ("--weights", "config.json", "damaged")),
                                 (("--inputs", "/nowhere"), ("--inputs", "/nowhere")),
                                 (("--out", "/nowhere/x"), ("--out", "/nowhere/x")),
                                 (("--out", folder.weights), ("--out", "not a folder")),
                                 (("--unknown",), ("--unknown",))):
                done = folder.quantize(*flags)
                self.assertEqual(done.returncode, 2, (flags, done.stderr))
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)
                self.assertEqual(sorted(os.listdir(folder.path)), before)

    def test_matrices_stored_as_inputs_by_outputs_are_refused(self):
        sizes = {"attn.c_attn": (8, 24), "attn.c_proj": (8, 8), "mlp.c_proj": (32, 8)}
        for exclude in ((), ("--exclude", "*.c_attn", "--exclude", "*.mlp.c_proj")):
            with Folder() as folder:
                tensors = {}
                for name, (inputs, outputs) in sizes.items():
                    tensors[f"h.0.{name}.weight"] = ("F32", [inputs, outputs], floats(inputs * outputs, 1))
                    tensors[f"h.0.{name}.bias"] = ("F32", [outputs], floats(outputs, 2))
                save(folder.weights, tensors)
                done = subprocess.run([PROGRAM, "--weights", folder.weights, "--out", folder.file("out"), "--method", "rtn", "--group-size", "8", "--layers", "*", *exclude],
                                      capture_output=True, text=True, timeout=TIMEOUT)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("[inputs, outputs]", done.stderr)
                self.assertIn("attn.c_proj" if exclude else "c_attn", done.stderr)

    def test_stacks_of_experts_are_refused(self):
        for name in ("mlp.experts.gate_up_proj", "block_sparse_moe.input_linear.weight"):
            with Folder() as folder:
                save(folder.weights, {"h.0.q_proj.weight": ("F32", [8, 8], floats(64, 1)), f"h.0.{name}": ("F32", [3, 16, 8], floats(3 * 128, 2)),
                                      "h.0.conv.weight": ("F32", [8, 8, 4], floats(256, 3))})
                words = [PROGRAM, "--weights", folder.weights, "--out", folder.file("out"), "--method", "rtn", "--group-size", "8", "--layers", "*"]
                done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(f"h.0.{name} in ", done.stderr)
                self.assertIn("all experts of a mixture", done.stderr)
                done = subprocess.run([*words, "--exclude", "h.0.*experts*", "--exclude", "*moe*"], capture_output=True, text=True, timeout=TIMEOUT)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_nothing_is_replaced_unless_forced(self):
        with Folder() as folder:
            self.assertEqual(folder.quantize(out="out/").returncode, 0)
            refused = folder.quantize("--bits", "8")
            self.assertEqual(refused.returncode, 2)
            self.assertIn("--force", refused.stderr)
            self.assertEqual(folder.quantize("--bits", "8", "--force").returncode, 0)

    def test_an_interrupted_run_leaves_nothing(self):
        with Folder() as folder:
            side = 1024
            save(folder.weights, {f"l{i}.weight": ("F32", [side, side], bytes(4 * side * side)) for i in range(8)})
            os.truncate(folder.inputs, 0)
            save(folder.inputs, {f"l{i}": ("F32", [2048, side], floats(2048 * 8, i) * (side // 8)) for i in range(8)})
            before = sorted(os.listdir(folder.path))
            process = subprocess.Popen(folder.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            first = process.stderr.readline()
            self.assertIn("layer 1/8", first)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=TIMEOUT)
            self.assertEqual(process.returncode, 130, err)
            self.assertIn("nothing was written", err)
            self.assertEqual(sorted(os.listdir(folder.path)), before)


class CompressedTensors(unittest.TestCase):
    def test_decompresses_to_the_weight_that_was_measured(self):
        import torch
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationConfig
        from safetensors.torch import load_file

        with Folder() as folder:
            for bits in range(2, 9):
                for symmetric in ("on", "off"):
                    for group, dtype in (("32", "f16"), ("-1", "bf16")):
                        done = folder.quantize("--bits", str(bits), "--symmetric", symmetric, "--group-size", group, "--scale-dtype", dtype,
                                               "--force")
                        self.assertEqual(done.returncode, 0, done.stderr)
                        with open(folder.file("out", "config.json")) as file:
                            config = QuantizationConfig.model_validate(json.load(file)["quantization_config"])
                        self.assertEqual(config.format, "pack-quantized")
                        self.assertEqual(config.ignore, ["model.embed"])
                        scheme = config.config_groups["group_0"]
                        path = folder.file("out", "model.safetensors")
                        tensors, raw = load_file(path), load(path)
                        for module, (rows, cols) in SHAPES.items():
                            state = {name[len(module) + 1:]: tensor for name, tensor in tensors.items() if name.startswith(module + ".")}
                            # Products in float32 are exact; in half precision they would be rounded.
                            state["weight_scale"] = state["weight_scale"].float()
                            weight = BaseCompressor.get_value_from_registry(config.format).decompress(state, scheme)["weight"]
                            self.assertEqual(tuple(weight.shape), (rows, cols))
                            if dtype == "f16":
                                own = torch.tensor(decode_compressed(raw, module, bits, symmetric == "on"), dtype=torch.float32)
                                self.assertTrue(torch.equal(weight, own), (bits, symmetric, module))
                            again = BaseCompressor.get_value_from_registry(config.format).compress(
                                {**{k: v for k, v in state.items() if k in ("weight_scale",)}, "weight": weight,
                                 "weight_zero_point": self.zeros(state, raw, module, bits, symmetric)}, scheme)
                            self.assertTrue(torch.equal(again["weight_packed"], tensors[f"{module}.weight_packed"]))

    def zeros(self, state, raw, module, bits, symmetric):
        import torch
        from compressed_tensors.compressors.pack_quantized import unpack_from_int32
        scale = state["weight_scale"]
        if symmetric == "on":
            return torch.zeros(scale.shape, dtype=torch.int8)
        return unpack_from_int32(state["weight_zero_point"], bits, scale.shape, packed_dim=0)


NEEDS_TORCHAO = unittest.skipIf(os.environ.get("Torch_DIR"), "torchao is for the LibTorch that is the default")


class Formats(unittest.TestCase):
    """Codes, scales and decoded weights of the floating-point formats, beside compressed-tensors and torchao."""

    def weight(self):
        """64 rows of 128 numbers: random ones of all sizes, and edges."""
        import torch
        torch.manual_seed(3)
        w = torch.randn(64, 128) * torch.logspace(-6, 3, 64)[:, None]
        w[0] = 0  # all blocks zero
        w[1, :32] = 0
        w[2, :16] = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5, -0.0])
        w[2, 16:32] = w[2, :16] * 2
        w[3, :32] = 1e-40  # subnormal
        w[4, :32] = torch.linspace(-7, 7, 32)
        w[5, :32] = torch.linspace(-6.999, 7, 32)
        w[6, :32] = torch.linspace(-465, 465, 32)
        w[7, :32] = torch.linspace(-448, 448, 32)
        w[8, :32] = 2.0 ** torch.arange(-16, 16)
        w[9, :32] = 1e-3
        w[9, 5] = 1e30
        return w

    def export(self, weight, *flags):
        """(tensors of the layer, scheme, compressor)"""
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationConfig
        from safetensors.torch import load_file, save_file
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "in.safetensors")
            save_file({"l.weight": weight}, path)
            done = subprocess.run([PROGRAM, "--weights", path, "--layers", "*", "--method", "rtn", "--out", os.path.join(folder, "out"),
                                   *flags], capture_output=True, text=True, timeout=TIMEOUT, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(folder, "out", "config.json"), encoding="utf-8") as file:
                config = QuantizationConfig.model_validate(json.load(file)["quantization_config"])
            tensors = {name[2:]: tensor for name, tensor in load_file(os.path.join(folder, "out", "model.safetensors")).items()}
        return tensors, config.config_groups["group_0"], BaseCompressor.get_value_from_registry(config.format)

    def unpacked(self, tensors):
        import torch
        packed = tensors["weight_packed"]
        return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)

    def decoded(self, tensors, scheme):
        """The weight in float32, by compressed-tensors' own functions."""
        import torch
        from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
        from compressed_tensors.quantization.lifecycle.forward import dequantize
        scale = tensors["weight_scale"]
        scale = 2.0 ** (scale.to(torch.float32) - 127) if scale.dtype == torch.uint8 else scale.float()
        if "weight_packed" in tensors:
            rows, columns = tensors["weight_packed"].shape
            codes = unpack_fp4_from_uint8(tensors["weight_packed"], rows, 2 * columns, dtype=torch.float32)
        else:
            codes = tensors["weight"].float()
        return dequantize(x_q=codes, scale=scale, args=scheme.weights, global_scale=tensors.get("weight_global_scale"), dtype=torch.float32)

    def torchao_codes(self, packed):
        import torch
        packed = packed.view(torch.uint8)
        return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)

    @NEEDS_TORCHAO
    def test_mx_equals_torchao_under_every_rule(self):
        import torch
        from torchao.prototype.mx_formats.config import ScaleCalculationMode
        from torchao.prototype.mx_formats.mx_tensor import to_mx
        weight = self.weight()
        for rule, mode in (("floor", ScaleCalculationMode.FLOOR), ("even", ScaleCalculationMode.EVEN), ("rceil", ScaleCalculationMode.RCEIL)):
            for name, dtype in (("mxfp4", torch.float4_e2m1fn_x2), ("mxfp8", torch.float8_e4m3fn)):
                with self.subTest(rule=rule, format=name):
                    tensors, _, _ = self.export(weight, "--format", name, "--scale-rule", rule)
                    scales, codes = to_mx(weight, dtype, 32, mode)
                    self.assertTrue(torch.equal(tensors["weight_scale"], scales.view(torch.uint8)))
                    if name == "mxfp4":
                        self.assertTrue(torch.equal(self.unpacked(tensors), self.torchao_codes(codes)))
                    else:
                        # If the scale is 2^-127, torchao divides by 2^-126, which is no subnormal number.
                        same = tensors["weight"].view(torch.uint8) == codes.view(torch.uint8)
                        scaled = (tensors["weight_scale"] > 0).repeat_interleave(32, 1)
                        self.assertTrue(torch.all(same | ~scaled))

    def test_mx_equals_compressed_tensors(self):
        import torch
        from compressed_tensors.quantization.utils import generate_mx_scales
        from compressed_tensors.quantization.utils.fp4_utils import cast_to_fp4
        weight = self.weight()
        tensors, scheme, compressor = self.export(weight, "--format", "mxfp4")
        blocks = weight.reshape(64, 4, 32)
        scales = generate_mx_scales(blocks.abs().amax(-1)).clamp(0, 255).to(torch.uint8)
        self.assertTrue(torch.equal(tensors["weight_scale"], scales))
        scale = 2.0 ** (scales.float() - 127)
        expected = (cast_to_fp4((blocks / scale[..., None]).clamp(-6, 6)) * scale[..., None]).reshape(64, 128)
        self.assertTrue(torch.equal(self.decoded(tensors, scheme), expected))
        # As a program loads it: products of powers of two are exact in bfloat16.
        loaded = compressor.decompress(dict(tensors), scheme)["weight"].float()
        self.assertTrue(torch.equal(loaded, expected))

    def test_nvfp4_equals_compressed_tensors(self):
        import torch
        from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
        from compressed_tensors.quantization.utils.fp4_utils import cast_to_fp4
        weight = self.weight()[10:40].contiguous()
        tensors, scheme, _ = self.export(weight, "--format", "nvfp4")
        general = generate_gparam(weight.min(), weight.max())
        self.assertTrue(torch.equal(tensors["weight_global_scale"], general))
        blocks = weight.reshape(30, 8, 16)
        scales, _ = calculate_qparams(blocks.amin(-1), blocks.amax(-1), scheme.weights, general)
        # Our scales are at least the smallest normal number, as torchao's. Where theirs round to 0, they take 0.125.
        ours, small = tensors["weight_scale"].float(), blocks.abs().amax(-1) / 6 * general < 2.0 ** -6
        self.assertTrue(torch.all(ours[small] == 2.0 ** -6))
        self.assertTrue(torch.equal(ours[~small], scales.float()[~small]))
        effective = (tensors["weight_scale"].float() / general)[..., None]
        expected = (cast_to_fp4((blocks / effective).clamp(-6, 6)) * effective).reshape(30, 128)
        self.assertTrue(torch.equal(self.decoded(tensors, scheme), expected))

    @NEEDS_TORCHAO
    def test_nvfp4_equals_torchao_but_for_its_rounding(self):
        import torch
        from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale
        torch.manual_seed(5)
        weight = torch.randn(64, 128)
        tensors, _, _ = self.export(weight, "--format", "nvfp4")
        scales, codes = nvfp4_quantize(weight, 16, per_tensor_amax_to_scale(weight.abs().max()))
        self.assertTrue(torch.equal(tensors["weight_scale"].view(torch.uint8), scales.view(torch.uint8)))
        # It multiplies by a rounded reciprocal, and we divide: only codes next to ties differ.
        differ = self.unpacked(tensors) != self.torchao_codes(codes)
        self.assertLess(differ.float().mean().item(), 1e-3)

    def test_fp8_equals_compressed_tensors(self):
        import torch
        weight = self.weight()
        for flags, amax in (((), weight.abs().amax(-1, keepdim=True)),
                            (("--group-rows", "-1"), weight.abs().max().reshape(1)),
                            (("--group-size", "32", "--group-rows", "32"), weight.abs().reshape(2, 32, 4, 32).amax((1, 3)))):
            with self.subTest(flags=flags):
                tensors, scheme, _ = self.export(weight, "--format", "fp8", *flags)
                scale = amax / 448
                scale[scale == 0] = 1 / 448
                self.assertTrue(torch.equal(tensors["weight_scale"], scale))
                full = scale if scale.dim() < 2 or scale.shape[1] == 1 else scale.repeat_interleave(32, 0).repeat_interleave(32, 1)
                codes = (weight / full).clamp(-448, 448).to(torch.float8_e4m3fn)
                self.assertTrue(torch.equal(tensors["weight"].view(torch.uint8), codes.view(torch.uint8)))
                self.assertTrue(torch.equal(self.decoded(tensors, scheme), codes.float() * full))


def import_compressed_tensors():
    """Returns the folders of ./setup, or ends the program."""
    torch = torch_folders()
    packages = os.path.join(CACHE, "python-quantize")
    if not os.path.isdir(packages):
        print(f"skipped: there is no {packages}; ./setup makes it where LibTorch has CUDA")
        sys.exit(SKIPPED)
    torchao = [] if os.environ.get("Torch_DIR") else [os.path.join(CACHE, "python-torchao")]
    sys.path[:0] = [packages, *torchao, *torch]
    try:
        import torch as _
    except (ImportError, OSError, ValueError) as error:
        print(f"skipped: PyTorch cannot be imported from {torch}: {error}")
        sys.exit(SKIPPED)
    import compressed_tensors as _


if __name__ == "__main__":
    PROGRAM, group = sys.argv[1], sys.argv[2]
    if group != "Program":
        import_compressed_tensors()
    unittest.main(argv=[sys.argv[0], group, *sys.argv[3:]], verbosity=2)
