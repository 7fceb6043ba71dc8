"""A model whose weights are sharded over ranks: the parts of this rank. Nothing here communicates."""

import math
from typing import NamedTuple

import torch
from torch.nn.parameter import is_lazy

# Parts of parameter names that wrappers add.
_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")


def without_wrappers(name):
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def local(tensor):
    """The part of a DTensor that this process has; any other tensor itself."""
    return tensor._local_tensor if type(tensor).__name__ == "DTensor" else tensor


def _cut(length, pieces, index):
    """Begin and length of a piece, as torch.chunk and DTensor cut."""
    size = -(-length // pieces)
    begin = min(index * size, length)
    return begin, min(size, length - begin)


class Part(NamedTuple):
    """What this rank has of a tensor: a box of the whole, or a run of its elements, by the number of offsets."""

    local: torch.Tensor
    shape: tuple  #: of the whole
    offset: list
    held: bool = True  #: the optimizer has a parameter of this part alone


def _run(flat, begin, count, shape, offset):
    return Part(flat.detach().narrow(0, begin, count), tuple(shape), [offset])


def _of_fsdp1(model):
    """The parts of FSDP1's flat parameters, by the id of the owning module, and by the name there. The flat parameter keeps its shard in
    `_local_shard` while a forward pass has it whole, or rounded."""
    parts = {}
    for module in model.modules():
        handle = getattr(module, "_handle", None) if type(module).__name__ == "FullyShardedDataParallel" else None
        if handle is None:
            continue
        flat = handle.flat_param
        local = getattr(flat, "_local_shard", flat.data)
        held = getattr(flat, "_params", None) is not None  # use_orig_params
        for fqn, info, shape, contiguous, shard in zip(flat._fqns, flat._param_infos, flat._shapes, flat._contiguities, flat._shard_param_infos):
            if not contiguous:
                raise ValueError(f"parameter '{fqn}' is sharded over ranks, and its elements are not in order: make it contiguous")
            begin = (shard.offset_in_shard, shard.numel_in_shard, shape, shard.intra_param_start_idx) if shard.in_shard else (0, 0, shape, 0)
            parts.setdefault(id(info.module), {})[info.param_name] = _run(local, *begin)._replace(held=held)
        for info in flat._shared_param_infos:
            parts.setdefault(id(info.module), {})[info.param_name] = parts[id(info.prim_module)][info.prim_param_name]
    return parts


def _buffer_types(model):
    """The types that buffers had, by id, before FSDP1's mixed precision rounded them in place: its first forward pass does."""
    types = {}
    for module in model.modules():
        recorded = {without_wrappers(name): dtype for name, dtype in getattr(module, "_buffer_name_to_orig_dtype", {}).items()}
        for name, buffer in module.named_buffers(remove_duplicate=False) if recorded else ():
            types[id(buffer)] = recorded.get(without_wrappers(name), buffer.dtype)
    return types


def _master_of(parameter, shard):
    """DeepSpeed's wider copy of a partition, which its optimizer updates; the partition itself if there is none."""
    holder = getattr(parameter, "_z3_optimizer", None)
    place = holder and getattr(holder, "grad_position", {}).get(holder.get_param_id(parameter))
    if not place:  # frozen
        return shard
    group, begin, count = place
    flat = holder.fp32_partitioned_groups_flat[group].detach()
    if flat.numel() < begin + count:
        raise ValueError("the optimizer's copy of its partition of DeepSpeed's ZeRO-3 is not in memory")
    return flat.narrow(0, begin, count) if flat.dtype.itemsize > shard.dtype.itemsize else shard


def _of_zero3(parameter):
    """The part of a parameter that DeepSpeed's ZeRO-3 has partitioned. What lies behind the last element was never written."""
    shard = getattr(parameter, "ds_tensor", None)
    if shard is None or getattr(getattr(shard, "status", None), "name", "AVAILABLE") != "AVAILABLE":
        raise ValueError("its partition of DeepSpeed's ZeRO-3 is not in memory")
    if hasattr(shard, "ds_quant_scale"):
        raise ValueError("its partition of DeepSpeed's ZeRO-3 is quantized")
    master = _master_of(parameter, shard).view(-1)
    total = math.prod(parameter.ds_shape)
    begin = min(shard.numel() * torch.distributed.get_rank(parameter.ds_process_group), total)
    return _run(master, 0, min(shard.numel(), total - begin), parameter.ds_shape, begin)._replace(held=False)


def parts_of(model, named):
    """The model's tensors as (name, tensor, is_parameter, Part), or None if it is not sharded. `named` has those that its modules list. ValueError, naming
    the tensor, for what cannot be expressed."""
    flat = _of_fsdp1(model)
    names, types = {}, _buffer_types(model) if flat else {}
    if flat:
        for prefix, module in model.named_modules(remove_duplicate=False):
            for name, part in flat.get(id(module), {}).items():
                names[without_wrappers(f"{prefix}.{name}" if prefix else name)] = part
    sharded, listed = bool(flat), []
    for name, value, is_parameter in named:
        if is_lazy(value):
            listed.append((name, value, is_parameter, None))
            continue
        try:
            if name in names:
                part = names.pop(name)
            elif name.rpartition(".")[2] == "_flat_param":
                continue
            elif hasattr(value, "ds_id"):
                part, sharded = _of_zero3(value), True
            elif type(value).__name__ == "DTensor":
                part = Part(value._local_tensor, tuple(value.shape), box_of(value))
                sharded = sharded or part.local.shape != value.shape
            else:
                part = Part(value.to(types.get(id(value), value.dtype)), tuple(value.shape), [0] * value.dim())
        except ValueError as error:
            raise ValueError(f"{'parameter' if is_parameter else 'buffer'} '{name}' is sharded over ranks, and {error}") from error
        listed.append((name, value, is_parameter, part))
    listed += [(name, part.local, True, part) for name, part in names.items()]
    return listed if sharded else None


def box_of(tensor):
    """Where the local part of a DTensor begins in the whole. ValueError if that cannot be said."""
    mesh, sizes, begin = tensor.device_mesh, list(tensor.shape), [0] * tensor.dim()
    cuts, strided = [], []
    for dimension, placement in enumerate(tensor.placements):
        kind = type(placement).__name__
        if kind == "_StridedShard":
            strided.append((dimension, placement))
        elif kind == "Shard":
            cuts.append((dimension, placement))
        elif kind != "Replicate":
            raise ValueError(f"its placement is {placement}, which is no part of it")
    pieces = [1] * tensor.dim()
    coordinate = mesh.get_coordinate()
    if coordinate is None:  # this rank has none of it
        return begin
    # A strided shard is cut out of the shards of the mesh's later dimensions.
    for dimension, placement in cuts + strided[::-1]:
        dim, count = placement.dim, mesh.size(dimension)
        if getattr(placement, "split_factor", pieces[dim]) != pieces[dim]:
            raise ValueError(f"its placements are {tuple(tensor.placements)}, an order of cuts that is not known")
        shift, sizes[dim] = _cut(sizes[dim], count, coordinate[dimension])
        begin[dim] += shift
        pieces[dim] *= count
    local = tuple(tensor._local_tensor.shape)
    if math.prod(local) + math.prod(sizes) and local != tuple(sizes):
        raise ValueError(f"this rank has {list(local)} of it and not {sizes}: cut unevenly in several ways")
    return begin
