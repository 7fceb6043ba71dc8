"""The size of compressed weights: the entropy of codes, and what compressors make of them. Those of Debian's libraries zstd and brotli,
which cmake needs too, and Python's own."""

import bz2
import ctypes
import lzma
import zlib

import pytest
import tiny
import torch

import ptqwatch


def zstd(data):
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compressBound.restype = library.ZSTD_compress.restype = ctypes.c_size_t
    library.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
    library.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    library.ZSTD_isError.argtypes = [ctypes.c_size_t]
    most = library.ZSTD_compressBound(len(data))
    size = library.ZSTD_compress(ctypes.create_string_buffer(most), most, data, len(data), library.ZSTD_maxCLevel())
    assert not library.ZSTD_isError(size)
    return size


def brotli(data, quality=11, window=24):
    library = ctypes.CDLL("libbrotlienc.so.1")
    library.BrotliEncoderMaxCompressedSize.restype = ctypes.c_size_t
    library.BrotliEncoderMaxCompressedSize.argtypes = [ctypes.c_size_t]
    library.BrotliEncoderCompress.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p,
                                              ctypes.POINTER(ctypes.c_size_t), ctypes.c_char_p]
    most = library.BrotliEncoderMaxCompressedSize(len(data))
    size = ctypes.c_size_t(most)
    assert library.BrotliEncoderCompress(quality, window, 0, len(data), data, ctypes.byref(size), ctypes.create_string_buffer(most)) == 1
    return size.value


COMPRESSORS = {"zstd": zstd, "brotli": brotli, "lzma": lambda data: len(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)),
               "bzip2": lambda data: len(bz2.compress(data, 9)), "zlib": lambda data: len(zlib.compress(data, 9))}


def gaussian(rows=512, columns=1024):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))


def entropy_of(codes):
    shares = torch.bincount(codes.flatten().long()).double() / codes.numel()
    shares = shares[shares > 0]
    return -(shares * shares.log2()).sum().item()


def codes_of(bits, group_size):
    """Rounded to nearest on symmetric grids over +-max|w|, and their entropy: by the engine, or as it would at other widths."""
    weight = gaussian()
    if bits in (2, 3, 4, 8):
        quantized = ptqwatch.quantize(weight, method="rtn", bits=bits, group_size=group_size, artifact_size=True)
        assert quantized.entropy_bits == pytest.approx(entropy_of(quantized.codes), abs=1e-9)
        return quantized.codes, quantized.entropy_bits
    groups = weight.view(-1, weight.shape[1] if group_size < 0 else group_size)
    scale = 2 * groups.abs().amax(1, keepdim=True) / (2**bits - 1)
    codes = ((groups / scale).round() + 2**(bits - 1)).clamp(0, 2**bits - 1).to(torch.uint8)
    return codes, entropy_of(codes)


def packed_of(codes, bits):
    """As many codes a byte as fit."""
    groups = codes.flatten().int().view(-1, 8 // bits)
    return sum(groups[:, i] << (bits * i) for i in range(8 // bits)).to(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("group_size", [128, -1])
@pytest.mark.parametrize("bits", [4, 6, 8])
def test_entropy_is_what_the_best_compressors_need(bits, group_size):
    codes, entropy = codes_of(bits, group_size)
    data = codes.numpy().tobytes()
    for compressor in (zstd, brotli):
        excess = 8 * compressor(data) / len(data) / entropy - 1
        assert 0 < excess < 0.02, compressor.__name__


@pytest.mark.parametrize("bits, least", [(2, 0.1), (3, 0.015)])
def test_few_bits_take_more_unless_several_codes_share_a_byte(bits, least):
    """A prefix code spends a whole number of bits on each byte."""
    codes, entropy = codes_of(bits, 128)
    data, packed = codes.numpy().tobytes(), packed_of(codes, bits)
    assert 8 * zstd(data) / len(data) / entropy - 1 > least
    for compressor in (zstd, brotli):
        assert 0 < 8 * compressor(packed) / len(data) / entropy - 1 < 0.025, compressor.__name__


def test_quantize_leaves_the_size_out_unless_asked():
    weight = gaussian(8, 64)
    without = ptqwatch.quantize(weight, method="rtn", group_size=32)
    assert without.entropy_bits is None and without.stored_bytes is None
    quantized = ptqwatch.quantize(weight, method="rtn", group_size=32, artifact_size=True)
    assert quantized.stored_bytes == -(-quantized.entropy_bits * 512 // 8) + 8 * 2 * 4
    weight[0, 0] = float("nan")
    refused = ptqwatch.quantize(weight, method="rtn", artifact_size=True)
    assert refused.status == "nonfinite" and refused.entropy_bits is None and refused.stored_bytes is None
    with pytest.raises(TypeError, match="artifact_size"):
        ptqwatch.quantize(weight, method="rtn", artifact_size=1)


def test_quantize_model_and_a_monitor_agree():
    model, probe = tiny.make_model(), tiny.probe_batches()
    quantizers = ["rtn3", "nf4"]
    offline = ptqwatch.quantize_model(model, tiny.token_losses, probe, quantizers, artifact_size=True)
    for result in offline:
        sizes = [layer.matrix.stored_bytes for layer in result.layers.values()]
        covered = sum(layer.matrix.codes.numel() for layer in result.layers.values())
        # Each layer's codes round up to bytes on their own, and all together once.
        assert sum(sizes) - len(sizes) <= result.artifact_bytes - 2 * (result.parameters - covered) <= sum(sizes)
    with ptqwatch.watch(model, losses=tiny.token_losses, probe=probe, every=1, mode="thread", on_failure="error", adapt_plan=False,
                        max_overhead=1.0, quantizers=quantizers, artifact_size=True, bytes_per_token=3.5) as monitor:
        monitor.step(1, 1e-2)
    report = monitor.latest()
    assert report["bytes_per_token"] == 3.5
    for result, entry in zip(offline, report["quantization"]):
        assert entry["artifact_bytes"] == result.artifact_bytes
        assert entry["entropy_bits"] == pytest.approx(result.entropy_bits, abs=1e-12)
        for row in entry["layers"]:
            assert row["entropy_bits"] == pytest.approx(result.layers[row["name"]].matrix.entropy_bits, rel=1e-2)


if __name__ == "__main__":  # prints the table of docs/quantizers.md
    for group_size in (128, -1):
        for bits in (2, 3, 4, 5, 6, 8):
            codes, entropy = codes_of(bits, group_size)
            data = codes.numpy().tobytes()
            sizes = [compressor(data) for compressor in COMPRESSORS.values()]
            if bits <= 4:
                sizes += [compressor(packed_of(codes, bits)) for compressor in (zstd, brotli)]
            cells = [f"{8 * size / len(data):.3f} (+{800 * size / len(data) / entropy - 100:.1f} %)" for size in sizes]
            print("|", " | ".join([str(bits), str(group_size), f"{entropy:.3f}", *cells]), "|")
