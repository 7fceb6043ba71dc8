"""A rank of a run of Hugging Face's Trainer in which accelerate shards the model, as a program: RANK RANKS FOLDER FSDP_CONFIG BF16.

Rank 0 prints the last report, and that of a plain model with the weights that the ranks had then.
"""

import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist

import ptqwatch
import tiny

OPTIONS = {"probe": [{"input_ids": tiny.draw(16, 9)[0]}], "every": 4, "quantizers": "rtn3,gptq4", "max_overhead": 1.0, "adapt_plan": False, "on_failure": "error",
           "averaging": {"enabled": False}, "curvature": {"enabled": False}}


def make_model():
    import transformers

    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=tiny.VOCABULARY, hidden_size=30, intermediate_size=62, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        max_position_embeddings=16, tie_word_embeddings=True))


def whole(model):
    """All parameters and buffers, as they are on all ranks together."""
    from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType

    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=False)):
            tensors = model.state_dict()
    else:
        tensors = {name: tensor.full_tensor() for name, tensor in model.state_dict().items()}
    tensors |= {name.replace("_fsdp_wrapped_module.", ""): buffer for name, buffer in model.named_buffers()}
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def plain_report(tensors):
    model = make_model()
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            tensor.copy_(tensors[name])
    monitor = ptqwatch.watch(model, mode="thread", losses="ptqwatch.losses:causal_lm", ranks_from_environment=False, **OPTIONS)
    monitor.step(4, 1e-3)
    assert monitor.finish(100)
    return monitor.latest()


def main():
    rank, ranks, folder, config, bf16 = sys.argv[1:]
    rank, folder = int(rank), pathlib.Path(folder)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=ranks, LOCAL_WORLD_SIZE=ranks)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=int(ranks))
    import transformers
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType

    from ptqwatch.hf import PtqwatchCallback

    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=4, per_device_train_batch_size=2, learning_rate=1e-2, save_strategy="no", use_cpu=True, bf16=bf16 == "1", report_to=[],
        disable_tqdm=True, ddp_backend="gloo", eval_strategy="steps", eval_steps=2, prediction_loss_only=True, fsdp=True, fsdp_config=json.loads(config))
    assert arguments.device.type == "cpu"
    # accelerate shards on accelerators alone, and FSDP1 takes a CPU without a number.
    PartialState._shared_state.update(distributed_type=DistributedType.MULTI_GPU, device=torch.device("cpu"))
    tensors = {}

    class Keep(transformers.TrainerCallback):
        def on_train_end(self, args, state, control, model=None, **names):
            tensors.update(whole(model))

    data = [{"input_ids": ids, "labels": ids} for ids in tiny.draw(32, 0)[0]]
    callback = PtqwatchCallback(build="sharded_hf_trainer:make_model", finish_timeout=100, **OPTIONS)
    transformers.Trainer(model=make_model(), args=arguments, train_dataset=data, eval_dataset=data[:4], callbacks=[callback, Keep()]).train()
    if rank == 0:
        print(json.dumps([callback.monitor.latest(), plain_report(tensors)]))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads


if __name__ == "__main__":
    main()
