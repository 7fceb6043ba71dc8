"""`ptqwatch trajectory` on a checkpoint of transformers, and `quantize_model` on the model itself, give the same losses."""

import copy
import json
import subprocess

import pytest
import torch

import ptqwatch

VOCABULARY, LENGTH, PROBE, CALIBRATION = 97, 30, 8, 16
SIZES = dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
             max_position_embeddings=LENGTH, pad_token_id=None, bos_token_id=None, eos_token_id=None)
MODELS = {
    "GPT2LMHeadModel": dict(n_inner=96),  # stored transposed
    "Phi3ForCausalLM": dict(num_key_value_heads=2),  # fused matrices
    "Gemma3ForCausalLM": dict(num_key_value_heads=2, head_dim=16, sliding_window=7),
    "Glm4ForCausalLM": dict(num_key_value_heads=2, head_dim=16),
    "GraniteForCausalLM": dict(residual_multiplier=0.5, logits_scaling=0.7),
    "Qwen2ForCausalLM": dict(num_key_value_heads=1),
    "OlmoeForCausalLM": dict(num_key_value_heads=2, intermediate_size=32, num_experts=7, num_experts_per_tok=2),
}


def make_model(name, keys):
    import transformers

    kind = getattr(transformers, name)
    model = kind(kind.config_class(**{**SIZES, **keys}, attn_implementation="eager")).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter += 0.2 * noise if parameter.dim() == 1 else noise / 8
    return model


def losses(model, batch):
    logits = model(batch[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch[:, 1:], reduction="none")


def mean_loss(model, batch):
    with torch.no_grad():
        return losses(model, batch).double().mean().item()


def sequences(path, count, seed):
    """Writes tokens; gives the sequences, each of which begins with the last token of the one before."""
    tokens = torch.randint(VOCABULARY, (count * LENGTH + 1,), generator=torch.Generator().manual_seed(seed))
    tokens.numpy().astype("uint16").tofile(path)
    return tokens.unfold(0, LENGTH + 1, LENGTH)


@pytest.mark.parametrize("name", MODELS)
def test_losses_are_those_of_quantize_model(name, tmp_path, bin_dir):
    if not (bin_dir / "ptqwatch-trajectory").exists():
        pytest.skip("trajectory was not built")
    model = make_model(name, MODELS[name])
    model.save_pretrained(tmp_path / "model")
    probe, calibration = sequences(tmp_path / "probe.bin", PROBE, 1), sequences(tmp_path / "calibration.bin", CALIBRATION, 2)
    subprocess.run([bin_dir / "ptqwatch", "trajectory", tmp_path / "model", "--probe", tmp_path / "probe.bin", "--calibration",
                    tmp_path / "calibration.bin", "--length", str(LENGTH), "--run-dir", tmp_path / "run", "--quantizers", "rtn3,gptq4",
                    "--no-curvature", "--threads", "1"], check=True, timeout=120)
    history = subprocess.run([bin_dir / "ptqwatch", "history", tmp_path / "run", "--json"], check=True, timeout=60, capture_output=True)
    report = json.loads(history.stdout.splitlines()[0])
    assert report["probe_loss_nats"] == pytest.approx(mean_loss(model, probe), abs=1e-6)
    quantized = ptqwatch.quantize_model(model, losses, [calibration], ["rtn3", "gptq4"], threads=1)
    for found, expected in zip(report["quantization"], quantized, strict=True):
        other = copy.deepcopy(model)
        expected.load_into(other)
        assert found["loss_nats"] == pytest.approx(mean_loss(other, probe), abs=1e-6)
        assert abs(found["loss_nats"] - report["probe_loss_nats"]) > 1e-4
        assert sorted(layer["name"] for layer in found["layers"]) == sorted(expected.layers)
