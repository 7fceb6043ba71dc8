"""Quantizers as functions: golden cases, arrays in and out, mistakes."""

import threading
import time

import numpy
import pytest
import torch
from safetensors import safe_open

import ptqwatch
from conftest import ROOT

GOLDEN = ROOT / "tests/golden/data"
CODES_TOLERANCE = 0.003  # share of codes by which GPTQ may differ from the float64 reference


class Case:
    def __init__(self, path):
        with safe_open(path, "pt") as file:
            self.metadata = file.metadata()
            self.tensors = {name: file.get_tensor(name) for name in file.keys()}

    def __getitem__(self, name):
        return self.tensors[name]

    def number(self, name):
        return float(self.metadata[name])

    def fields(self):
        return {"bits": int(self.metadata["bits"]), "group_size": int(self.metadata["group_size"]),
                "symmetric": self.metadata["symmetric"] == "true", "min_tokens_ratio": 0.0}


def cases(folder):
    paths = sorted((GOLDEN / folder).glob("*.safetensors"))
    assert paths, folder
    # One case gives H instead of the inputs.
    return [pytest.param(path, id=path.stem) for path in paths if "identity" not in path.stem]


@pytest.mark.parametrize("path", cases("gptq"))
def test_gptq_gives_the_golden_codes(path):
    case = Case(path)
    weight = ptqwatch.quantize(case["weight"], case["inputs"], method="gptq", order=case.metadata["order"],
                               damp=case.number("damp"), **case.fields())
    assert weight.status == "ok"
    different = (weight.codes.int() != case["codes"]).sum().item()
    assert different <= CODES_TOLERANCE * case["codes"].numel()
    assert torch.equal(weight.scale, case["scale"]) and torch.equal(weight.zero, case["zero"])
    assert torch.equal(weight.order, case["order"])
    assert weight.loss == pytest.approx(case.number("loss"), rel=1e-3)
    assert weight.loss_damped == pytest.approx(case.number("loss_damped"), rel=1e-3)
    assert weight.rtn_loss == pytest.approx(case.number("rtn_loss"), rel=1e-3)


@pytest.mark.parametrize("path", cases("rtn"))
def test_rtn_gives_the_golden_bits(path):
    case = Case(path)
    weight = ptqwatch.quantize(case["weight"], method="rtn", **case.fields())
    assert torch.equal(weight.codes.int(), case["codes"].int())
    for name in ("scale", "zero", "dequantized"):
        assert torch.equal(getattr(weight, name), case[name]), name
    assert weight.loss is None


@pytest.mark.parametrize("path", cases("nf4"))
def test_nf4_gives_the_golden_bits(path):
    case = Case(path)
    weight = ptqwatch.quantize(case["weight"], method="nf4")
    assert torch.equal(weight.codes, case["codes"]) and torch.equal(weight.scale, case["absmax"])
    assert torch.equal(weight.dequantized, case["dequantized"]) and weight.zero is None


@pytest.mark.parametrize("path", cases("llmint8"))
def test_llm_int8_gives_the_golden_bits(path):
    case = Case(path)
    weight = ptqwatch.quantize(case["weight"], case["inputs"], method="llm_int8")
    assert torch.equal(weight.codes.int() - 128, case["codes"].int())
    assert torch.equal(weight.outlier_columns, case["outlier_columns"])
    assert weight.loss == pytest.approx(case.number("loss"), rel=1e-3)


@pytest.mark.parametrize("path", cases("awq"))
def test_awq_finds_the_golden_scales(path):
    case = Case(path)
    weight = ptqwatch.quantize(case["weight"], case["inputs"], method="awq", **case.fields())
    assert weight.channel_scale_ratio == pytest.approx(case.number("ratio"))
    torch.testing.assert_close(weight.search_losses, case["losses"], rtol=1e-3, atol=0)
    torch.testing.assert_close(weight.channel_scale, case["channel_scale"], rtol=1e-6, atol=0)


def layer(rows=24, cols=32, tokens=64):
    return torch.randn(rows, cols), torch.randn(tokens, cols)


def test_numpy_in_gives_numpy_out_with_the_same_bits():
    weight, inputs = layer()
    ours = ptqwatch.quantize(weight, inputs, group_size=16)
    theirs = ptqwatch.quantize(weight.numpy(), inputs.numpy(), group_size=16)
    for name in ("codes", "scale", "zero", "dequantized", "order"):
        array = getattr(theirs, name)
        assert isinstance(array, numpy.ndarray), name
        assert numpy.array_equal(array, getattr(ours, name).numpy()), name
    assert theirs.loss == ours.loss


def test_a_read_only_array_is_taken_without_a_warning(recwarn):
    weight = layer()[0].numpy()
    weight.flags.writeable = False
    ptqwatch.quantize(weight, method="rtn")
    assert not recwarn.list


def test_gram_serves_several_quantizers():
    weight, inputs = layer()
    shared = ptqwatch.gram(inputs.view(4, 16, 32))
    assert (shared.inputs, shared.tokens, shared.skipped_rows) == (32, 64, 0)
    torch.testing.assert_close(shared.sum, inputs.double().T @ inputs.double())
    assert shared.sum.data_ptr() == shared.sum.data_ptr()  # a view, not a copy
    for method in ("gptq", "awq", "rtn"):
        alone, with_shared = (ptqwatch.quantize(weight, given, method=method, bits=3) for given in (inputs, shared))
        assert torch.equal(alone.codes, with_shared.codes) and alone.loss == with_shared.loss


def test_the_results_outlive_what_they_came_from():
    weight, inputs = layer()
    sums = ptqwatch.gram(inputs).sum
    codes = ptqwatch.quantize(weight, inputs).codes
    again = codes.clone()
    del weight, inputs
    assert torch.equal(codes, again) and sums[0, 0] > 0


def test_blocks_and_threads_do_not_change_the_bits():
    weight, inputs = layer(tokens=512)
    whole = ptqwatch.quantize(weight, inputs, threads=1)
    blocks = ptqwatch.quantize(weight, (block for block in inputs.split(256)), threads=2)
    assert torch.equal(whole.codes, blocks.codes)


def test_the_loss_is_what_it_says():
    weight, inputs = layer()
    result = ptqwatch.quantize(weight, inputs, method="rtn", bits=3)
    error = (weight - result.dequantized).double()
    assert result.loss == pytest.approx(2 / 64 * (inputs.double() @ error.T).square().sum().item(), rel=1e-9)
    assert result.output_energy == pytest.approx(2 / 64 * (inputs.double() @ weight.double().T).square().sum().item(), rel=1e-9)


def test_bits_follow_from_format_and_method():
    weight = layer()[0]
    for fields, quantizer in (({"method": "nf4"}, "nf4 b4"), ({"method": "rtn", "format": "mxfp8"}, "rtn b8"),
                              ({"method": "rtn", "format": "nvfp4"}, "rtn b4"), ({"method": "rtn"}, "rtn b4")):
        assert ptqwatch.quantize(weight, **fields).quantizer.startswith(quantizer)


def test_fields_may_be_numbers_of_numpy():
    weight = layer()[0]
    one = ptqwatch.quantize(weight, method="rtn", bits=numpy.int64(3), group_size=numpy.int32(16))
    assert torch.equal(one.codes, ptqwatch.quantize(weight, method="rtn", bits=3, group_size=16).codes)


def test_bad_data_is_named_in_the_status():
    weight, inputs = layer()
    weight[3, 4] = float("nan")
    result = ptqwatch.quantize(weight, inputs)
    assert result.status == "nonfinite" and result.codes is None and result.dequantized is None
    few = ptqwatch.quantize(layer()[0], inputs[:2])
    assert few.status == "too_few_tokens" and few.codes is not None


@pytest.mark.parametrize("arguments, fields, error, message", [
    ((), {"bits": 9}, ValueError, r"bits is 9; it must be 2 to 8"),
    ((), {"bit": 4}, TypeError, r"no field 'bit'; the nearest is 'bits'"),
    ((), {"bits": 4.0}, TypeError, r"bits is 4\.0; it must be an int"),
    ((), {"threads": "2"}, TypeError, r"threads is '2'; it must be an int"),
    ((), {"threads": 0}, ValueError, r"threads is 0; it must be at least 1"),
    ((), {"bits": "4"}, TypeError, r"bits is '4'; it must be an int"),
    ((), {"bits": True}, TypeError, r"bits is True; it must be an int"),
    ((), {"bits": 2**40}, ValueError, r"bits is 1099511627776; it is too large"),
    ((), {"symmetric": 1}, TypeError, r"symmetric is 1; it must be a bool"),
    ((), {"damp": "1"}, TypeError, r"damp is '1'; it must be a float"),
    ((), {"damp": -1}, ValueError, r"damp is -1"),
    ((), {"method": 4}, TypeError, r"method is 4; it must be a str"),
    ((), {"method": "gptx"}, ValueError, r"gptx.*gptq"),
    ((), {"format": "fp4"}, ValueError, r"fp4.*mxfp4"),
    ((), {"method": "gptq"}, ValueError, r"statistics"),
    ((torch.zeros(3, 31),), {}, ValueError, r"activations has shape \[3, 31\]; it must be \[\.\.\., 32\]"),
    ((torch.zeros(3, 32, dtype=torch.int64),), {}, TypeError, r"activations has dtype torch.int64"),
    (("x",), {}, TypeError, r"activations is a str; it must be a torch.Tensor or a numpy.ndarray"),
    ((7,), {}, TypeError, r"activations is a int"),
    (([],), {}, ValueError, r"activations is empty"),
])
def test_mistakes_are_named(arguments, fields, error, message):
    with pytest.raises(error, match=message):
        ptqwatch.quantize(layer()[0], *arguments, **fields)


@pytest.mark.parametrize("weight, error, message", [
    (torch.zeros(4), ValueError, r"weight has shape \[4\]; it must be \[outputs, inputs\]"),
    (torch.zeros(2, 3, 4), ValueError, r"weight has shape \[2, 3, 4\]; it must be \[outputs, inputs\]"),
    (torch.zeros(8, 4, 1, 1), ValueError, r"weight has shape \[8, 4, 1, 1\]; it must be \[outputs, inputs\]"),
    (torch.zeros(0, 4), ValueError, r"weight has shape \[0, 4\]; it must be \[outputs, inputs\] and not empty"),
    ([[1.0]], TypeError, r"weight is a list"),
    (torch.zeros(2, 3, device="meta"), TypeError, r"weight is on the meta device or sparse"),
    (torch.zeros(2, 3).to_sparse(), TypeError, r"weight is on the meta device or sparse"),
])
def test_a_wrong_weight_is_named(weight, error, message):
    with pytest.raises(error, match=message):
        ptqwatch.quantize(weight, method="rtn")


def test_other_threads_run_meanwhile():
    weight, inputs = torch.randn(256, 768), torch.randn(1024, 768)
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.monotonic())
            done.wait(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    began = time.monotonic()
    ptqwatch.quantize(weight, inputs, threads=1)
    ended = time.monotonic()
    done.set()
    thread.join()
    longest = max(after - before for before, after in zip([began, *ticks], [*ticks, ended]))
    assert longest < 0.5 * (ended - began)
