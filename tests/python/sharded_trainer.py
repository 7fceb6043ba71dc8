"""A rank of a training run in which a model is sharded, as a program: RANK RANKS STORE RUN_DIR LAYOUT STEPS EVERY [FAULT].

The updates depend on the weights alone and are exact, so every layout has the same weights at every step. Prints the last
report's numbers on the rank that measures.
"""

import functools
import hashlib
import json
import os
import sys
import time
import types
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn

import ptqwatch
import tiny


class Model(nn.Module):
    """No dimension divides by the number of ranks, one has less rows than there are ranks, and the head is tied."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(18, 30)
        self.up = nn.Linear(30, 62)
        self.down = nn.Linear(62, 30)
        self.norm = nn.LayerNorm(30)
        self.mix = nn.Parameter(torch.randn(3, 30) / 8)
        self.head = nn.Linear(30, 18, bias=False)
        self.head.weight = self.embedding.weight
        self.norm.bias.requires_grad_(False)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, ids):
        h = self.embedding(ids)
        h = h + self.scale * self.down(torch.relu(self.up(self.norm(h)))) + self.mix.sum(0)
        return self.head(h)


def make_model():
    return Model()


def losses(model, batch):
    x, y = batch
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none").view_as(y)


def even_model():
    """Of sizes that two ranks, and two times two, can cut alike in any order."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(16, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32), nn.Linear(32, 16))


class ExpertModel(Model):
    """With stacked experts, of which each token goes through all, weighted. No number of ranks divides how many there are."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(30, 5, bias=False)
        self.experts = nn.Module()
        self.experts.up = nn.Parameter(torch.randn(5, 30, 14) / 8)
        self.experts.down = nn.Parameter(torch.randn(5, 14, 30) / 8)

    def forward(self, ids):
        h = self.embedding(ids)
        h = h + self.scale * self.down(torch.relu(self.up(self.norm(h)))) + self.mix.sum(0)
        each = torch.relu(h.unsqueeze(-3) @ self.experts.up) @ self.experts.down  # [sequence, expert, token, width]
        return self.head(h + (torch.softmax(self.router(h), -1).transpose(-1, -2).unsqueeze(-1) * each).sum(-3))


def expert_model():
    return ExpertModel()


def shard_experts(model, layout):
    """Experts over the ranks, beside parameters that are replicated or, in a second dimension of the mesh, sharded."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor

    ranks = dist.get_world_size()
    if layout == "experts":
        mesh = init_device_mesh("cpu", (ranks,))
    else:
        meshes = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("dp", "ep"))
        mesh = meshes["ep"]
    for name, parameter in list(model.experts.named_parameters()):
        setattr(model.experts, name, nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Shard(0)])))
    if layout == "experts":
        return model
    fully_shard(model.experts, mesh=meshes["dp"], shard_placement_fn=lambda parameter: Shard(1))
    return fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))


def shard_zero3(model):
    """Marks parameters as DeepSpeed does that trains in bfloat16. What the optimizer has are partitions in float32, one behind the other."""
    ranks, partitions, places = dist.get_world_size(), [], {}
    holder = SimpleNamespace(grad_position=places, get_param_id=lambda parameter: parameter.ds_id)
    for number, parameter in enumerate(model.parameters()):
        size = -(-parameter.numel() // ranks)
        whole = torch.full((size * ranks,), float("nan"))  # behind the last element, memory that nobody has written
        whole[:parameter.numel()] = parameter.detach().flatten()
        parameter.ds_id, parameter.ds_shape, parameter.ds_process_group, parameter._z3_optimizer = number, parameter.shape, dist.group.WORLD, holder
        parameter.ds_tensor = whole[dist.get_rank() * size:][:size].clone()
        parameter.data = torch.empty(0)
        if parameter.requires_grad:
            places[number] = [0, sum(map(len, partitions)), size]
            partitions.append(parameter.ds_tensor)
            parameter.ds_tensor = parameter.ds_tensor.bfloat16()
    holder.fp32_partitioned_groups_flat = [nn.Parameter(torch.cat(partitions))]


def shard(model, layout):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    ranks = dist.get_world_size()
    if layout in ("tp", "fsdp_tp"):
        mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("dp", "tp"))
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()} if isinstance(model, Model) else {"1": ColwiseParallel(), "3": RowwiseParallel()}
        parallelize_module(model, mesh["tp"], plan)
        return fully_shard(model, mesh=mesh["dp"]) if layout == "fsdp_tp" else model
    if layout == "hsdp":
        return fully_shard(model, mesh=init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("replicate", "shard")))
    if layout == "mixed":
        return fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    if layout == "mixed_kept":  # no group is sharded after a forward pass
        options = {"mesh": init_device_mesh("cpu", (ranks,)), "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16), "reshard_after_forward": False}
        fully_shard(model.up, **options)
        return fully_shard(model, **options)
    if layout == "compiled":
        mesh = init_device_mesh("cpu", (ranks,))
        model.up = torch.compile(checkpoint_wrapper(model.up), backend="aot_eager")
        fully_shard(model.up, mesh=mesh)
        return torch.compile(fully_shard(model, mesh=mesh), backend="aot_eager")
    if layout == "offload":
        return fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)), offload_policy=CPUOffloadPolicy(pin_memory=False))
    if layout.startswith("experts"):
        return shard_experts(model, layout)
    if layout == "fsdp":
        fully_shard(model.up, mesh=init_device_mesh("cpu", (ranks,)))
        return fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
    if layout.startswith("fsdp1"):
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision

        rounded = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16) if layout == "fsdp1_mixed" else None
        options = {"use_orig_params": True, "device_id": torch.device("cpu"), "mixed_precision": rounded}
        model.up = FullyShardedDataParallel(model.up, **options)
        return FullyShardedDataParallel(model, **options)
    if layout == "zero3":
        shard_zero3(model)
    return model


class Silence(torch.utils._python_dispatch.TorchDispatchMode):
    """Raises where an operator communicates."""

    def __torch_dispatch__(self, function, _, args=(), kwargs=None):
        assert function.namespace not in ("c10d", "_c10d_functional", "_c10d_functional_autograd", "fsdp"), function
        return function(*args, **(kwargs or {}))


def forbid_to_communicate():
    """Lets all that communicates, makes a group or uses the store raise where the package calls it, in whatever thread."""
    package = os.path.dirname(ptqwatch.__file__)

    def guarded(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            frame = sys._getframe(1)
            while frame:
                assert not frame.f_code.co_filename.startswith(package), f"{frame.f_code.co_name} calls {function.__name__}"
                frame = frame.f_back
            return function(*args, **kwargs)

        return call

    functions = dist.distributed_c10d
    local = ("get_", "is_", "supports_")  # these answer from this process
    names = [name for name in functions.__all__ if type(vars(functions)[name]) is types.FunctionType and not name.startswith(local)]
    loud = [(owner, name) for name in names for owner in (functions, dist) if hasattr(owner, name)] + [(dist, "init_device_mesh")]
    loud += [(owner, name) for owner in (dist.Store, dist.ProcessGroup) for name, value in vars(owner).items()
             if type(value).__name__ == "instancemethod" and name not in ("name", "rank", "size") and not name.startswith(("_", *local))]
    loud += [(dist.ProcessGroup, name) for name in ("_allgather_base", "_reduce_scatter_base")]
    for owner, name in loud:
        setattr(owner, name, guarded(getattr(owner, name)))


def set_gradients(parameters, step):
    for parameter in parameters:
        part = getattr(parameter, "_local_tensor", parameter).detach()
        gradient = part.sign() * 2.0**-(2 + step % 3)
        if part is not parameter.detach() and hasattr(parameter, "_local_tensor"):
            gradient = type(parameter).from_local(gradient, parameter.device_mesh, parameter.placements, run_check=False,
                                                  shape=parameter.shape, stride=parameter.stride())
        parameter.grad = gradient


class ByCallback:
    """The monitor that the callbacks make and call: Hugging Face's on rank 0, Lightning's, beside a stub of its package, on the others."""

    def __init__(self, model, rank, options):
        self._optimizer = options["optimizer"]
        self._trainer = SimpleNamespace(is_world_process_zero=rank == 0, is_global_zero=rank == 0, global_step=0, num_input_tokens_seen=0, log_history=[],
                                        strategy=SimpleNamespace(model=model), optimizers=[self._optimizer], accumulate_grad_batches=1, loggers=[])
        self._hugging_face = rank == 0
        if self._hugging_face:
            from ptqwatch.hf import PtqwatchCallback
        else:
            sys.modules["lightning.pytorch.callbacks"] = SimpleNamespace(Callback=type("Callback", (), {}))
            sys.modules.update(dict.fromkeys(("lightning", "lightning.pytorch"), SimpleNamespace()))
            from ptqwatch.lightning import PtqwatchCallback
        self._callback = PtqwatchCallback(finish_timeout=100.0, **options)
        if self._hugging_face:
            self._callback.on_train_begin(None, self._trainer, None, model=model, optimizer=self._optimizer)
        else:
            self._callback.on_train_start(self._trainer, model)
        self.latest, self.describe, self.stop = self._callback.monitor.latest, self._callback.monitor.describe, self._callback.monitor.stop

    def step(self, step, lr):
        self._trainer.global_step = step
        if self._hugging_face:
            self._callback.on_pre_optimizer_step(None, self._trainer, None, optimizer=self._optimizer)
            self._callback.on_log(None, self._trainer, None, logs={"loss": 1.0})
            self._callback.on_step_end(None, self._trainer, None)
        else:
            self._callback.on_before_optimizer_step(self._trainer, None, self._optimizer)
            self._callback.on_train_batch_end(self._trainer, None, {"loss": torch.ones(())}, None, step)

    def finish(self, _):
        self._callback.on_train_end(*([None] if self._hugging_face else []), self._trainer, None)
        return not self._hugging_face or self._trainer.log_history[-1]["ptqwatch/step"] == self._trainer.global_step


def train(model, rank, ranks, steps, optimizer, monitor=None):
    """Real training, on other data on each rank. Prints a digest of the weights on rank 0."""
    torch.manual_seed(rank)
    for step in range(1, steps + 1):
        losses(model, tiny.draw(8, int(torch.randint(1 << 30, ())))).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if monitor:
            monitor.step(step, 2.0**-7)
    assert not monitor or (monitor.finish(100) and monitor.stop())
    digests = [None] * ranks
    local = b"".join(parameter._local_tensor.detach().numpy().tobytes() for parameter in model.parameters())
    dist.all_gather_object(digests, hashlib.sha256(local).hexdigest())
    if rank == 0:
        print(json.dumps(digests))


def main():
    rank, ranks, store, run_dir, layout, steps, every, fault = (*sys.argv[1:], "")[:8]
    rank, ranks, steps, every = int(rank), int(ranks), int(steps), int(every)
    if fault == "two_hosts":
        half = ranks // 2
        os.environ.update(LOCAL_RANK=str(rank % half), LOCAL_WORLD_SIZE=str(half), GROUP_RANK=str(rank // half))
    forbid_to_communicate()
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if layout.endswith("tp") or fault == "even":
        make = even_model
    else:
        make = expert_model if layout.startswith("experts") or fault == "experts" else make_model
    build = f"sharded_trainer:{make.__name__}"
    model = make()
    if fault == "permuted":
        model.mix = nn.Parameter(torch.randn(30, 3).t())
    model = shard(model, layout)
    if fault == "odd" and rank == 1:
        model.register_buffer("odd", torch.empty(2, device="meta"))
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if layout == "zero3":
        parameters = parameters[0]._z3_optimizer.fp32_partitioned_groups_flat
    optimizer = torch.optim.AdamW(parameters, lr=2.0**-7, weight_decay=0, betas=(0.5, 0.5))
    options = {"losses": "sharded_trainer:losses", "probe": tiny.probe_batches(), "build": build, "every": every, "run_dir": run_dir, "quantizers": "rtn3,gptq4",
               "optimizer": None if fault == "no_optimizer" else optimizer, "max_overhead": 1.0, "adapt_plan": False, "on_failure": "error"}
    if layout == "plain":
        options["ranks_from_environment"] = False
    if fault in ("every_step", "slow"):
        options.update(curvature={"enabled": False}, averaging={"enabled": False})
    if fault == "odd":
        options["on_failure"] = "inert"
    if fault == "bfloat16":
        options["snapshot_dtype"] = fault
    if fault == "clock":
        options["schedule"] = {"every_seconds": 1.0}
    if fault.startswith("train"):
        train(model, rank, ranks, steps, optimizer, ptqwatch.watch(model, **options) if fault == "train_watched" else None)
        os._exit(0)
    silence = Silence()
    with silence:
        monitor = ByCallback(model, rank, options) if fault == "callbacks" else ptqwatch.watch(model, **options)
    if fault == "odd":
        dist.barrier()  # a rank that ends takes back what it said
        assert not monitor.failure, monitor.failure
    for step in range(1, steps + 1):
        if layout in ("compiled", "offload", "mixed_kept"):
            losses(model, tiny.draw(2, 1)).mean().backward()
        set_gradients(parameters, step)
        optimizer.step()
        optimizer.zero_grad()
        if layout in ("mixed", "mixed_kept", "fsdp1_mixed", "compiled", "offload"):
            with torch.no_grad():
                model(tiny.draw(2, 1)[0])
        if fault != "apart":  # training lets the ranks wait for each other
            dist.barrier()
        if fault == "skip" and rank == 1 and step == every:
            continue
        time.sleep({"every_step": 0.02 + 0.02 * ((step + rank) % 3), "slow": 0.04}.get(fault, 0))
        exact = [parameter.detach().clone() for parameter in model.parameters()] if fault == "rounded" else []
        with torch.no_grad():
            for parameter, values in zip(model.parameters(), exact):
                parameter.copy_(values.bfloat16())
        with silence:
            monitor.step(step, 2.0**-7)
        with torch.no_grad():
            for parameter, values in zip(model.parameters(), exact if step < steps else []):
                parameter.copy_(values)
    with silence:
        finished = monitor.finish(100) and (fault != "two_hosts" or monitor.finish(20))  # which has nothing to do
    if rank == 0:
        report = monitor.latest()
        print(json.dumps({key: report.get(key) for key in ("step", "snapshot_dtype", "snapshot_digest", "probe_loss_nats", "quantization", "curvature")}))
        print(monitor.describe(), file=sys.stderr)
    assert finished
    monitor.stop()
    dist.barrier()
    os._exit(0)  # gloo's threads


if __name__ == "__main__":
    main()
