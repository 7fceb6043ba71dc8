"""The model under test, as the compiled part calls it (PythonSubject)."""

import copy
import importlib.util
import logging
import os
import random
import sys
from typing import NamedTuple

import torch
from torch.nn.parameter import is_lazy
from torch.optim.swa_utils import AveragedModel

from ptqwatch._optimizer import named_view, view_of
from ptqwatch._shards import local, parts_of, without_wrappers


_log = logging.getLogger("ptqwatch")


class CooldownStep(NamedTuple):
    """One optimizer step of a simulated learning-rate decay."""

    index: int  #: 0, 1, ... in this decay; at 0 the optimizer's state starts afresh
    steps: int  #: of this decay
    learning_rate: float
    batch: int  #: seed for the step's batch


def unwrap(model):
    """The module inside DistributedDataParallel, DataParallel, AveragedModel, torch.compile and DeepSpeed's engine."""
    while True:
        if isinstance(getattr(model, "_orig_mod", None), torch.nn.Module):
            model = model._orig_mod
        elif isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel, AveragedModel)):
            model = model.module
        elif type(model).__name__ == "DeepSpeedEngine":
            model = model.module
        else:
            return model


def _sharded_by_fsdp(module):
    """The parameters of FSDP2 as the optimizer knows them, by owner and name there. While a group is unsharded, as the root's is after a
    forward pass without a backward one, the modules have others instead, rounded to the type of the mixed precision."""
    sharded = {}
    for part in module.modules():
        if not hasattr(part, "_get_fsdp_state"):
            continue
        state = part._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]  # several since PyTorch 2.12
        for parameter in (parameter for group in groups if group for parameter in group.fsdp_params):
            info = parameter._module_info
            owners = [(info.module, info.param_name), *zip(info.shared_modules, info.shared_param_names)]
            sharded.update({(id(owner), name): parameter.sharded_param for owner, name in owners})
    return sharded


def _named_parameters(module):
    sharded = _sharded_by_fsdp(module)
    if not sharded:  # a module may list them in a way of its own
        for name, value in module.named_parameters(remove_duplicate=False):
            yield name, value, True
        return
    for prefix, part in module.named_modules(remove_duplicate=False):
        for name, value in part._parameters.items():
            if value is not None:
                yield f"{prefix}.{name}" if prefix else name, sharded.get((id(part), name), value), True


def switches_of(module):
    """By name, the attributes that are True or False, on which a forward pass may depend."""
    return {f"{name}.{key}" if name else key: value for name, part in module.named_modules() for key, value in vars(part).items()
            if isinstance(value, bool) and key != "training"}


def named_tensors(module):
    """Parameters and buffers as (name, tensor, is_parameter), tied ones under each name, without the names of wrappers."""
    tensors = list(_named_parameters(module))
    tensors += [(name, value, False) for name, value in module.named_buffers(remove_duplicate=False)]
    return [(without_wrappers(name), *rest) for name, *rest in tensors]


def is_sharded(model):
    """Whether other ranks have parts of the model, or hold it in a way that cannot be read."""
    try:
        return parts_of(unwrap(model), named_tensors(unwrap(model))) is not None
    except ValueError:
        return True


def _gathers_late(model, optimizer):
    """Megatron's wrapped model and its optimizer have `ddp_config`; the chain that it makes of optimizers has their `config`, and the module inside the
    wrapper has its hooks."""
    configs = [getattr(optimizer, "config", None), *(getattr(holder, "ddp_config", None) for holder in (optimizer, *model.modules()))]
    hooks = [hook for part in model.modules() for hook in part._forward_pre_hooks.values()]
    return (any(getattr(config, "overlap_param_gather", False) for config in configs)
            or any("DistributedDataParallel._make_forward_pre_hook." in getattr(hook, "__qualname__", "") for hook in hooks))


def refusal_of(model, optimizer, parts):
    """Why this model cannot be watched in its process; empty if it can. `parts`: those of a sharded one."""
    instead = "its checkpoints can be measured as they appear: ptqwatch trajectory --follow"
    if _gathers_late(model, optimizer):
        return (f"Megatron's overlap_param_gather leaves old weights in the model after optimizer.step(), until its next forward pass: switch it off; or {instead}")
    for name, value, is_parameter in named_tensors(model) if parts is None else [part[:3] for part in parts]:
        kind = "parameter" if is_parameter else "buffer"
        if is_lazy(value):
            return f"{kind} '{name}' has no shape before the model has run: run it on a batch before ptqwatch.watch()"
        if value.is_meta:
            return f"{kind} '{name}' is on the meta device and has no values; {instead}"
        if parts is None and is_parameter and value.numel() == 0:
            return f"{kind} '{name}' has size 0: sharded or not initialised; {instead}"
        if torch.utils._python_dispatch.is_traceable_wrapper_subclass(local(value)):
            return f"{kind} '{name}' is a {type(local(value)).__name__}, not a plain tensor; {instead}"
    return ""


def _module(name):
    """Imports a module. The main script's name gives the script that runs: another import would run it again."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script and name not in sys.modules:
        spec = importlib.util.find_spec(name)
        if spec and spec.has_location and os.path.realpath(spec.origin) == os.path.realpath(script):
            return sys.modules["__main__"]
    return importlib.import_module(name)


def resolve(function, argument):
    """A callable, or the one that "module:function" names. ValueError or ImportError, naming `argument`, if there is none."""
    if callable(function):
        return function
    module, colon, name = function.partition(":") if isinstance(function, str) else ("", "", "")
    if not (module and colon and name):
        raise ValueError(f"{argument} = {function!r}: must be a callable or 'module:function'")
    try:
        found = _module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # a module may raise anything
        raise ImportError(f"{argument} = {function!r}: {type(error).__name__}: {error}") from error
    return found


class _OtherGenerators:
    """The generators of `random` and `numpy.random`, whose numbers training may use. Torch's are guarded by the library."""

    def __init__(self):
        self._random = random.getstate()
        self._numpy = sys.modules.get("numpy.random")
        self._legacy = self._numpy and self._numpy.get_state()

    def restore(self):
        """Puts both back as they were. Returns whether either was used."""
        used = random.getstate() != self._random
        random.setstate(self._random)
        if self._numpy is not None:
            now = self._numpy.get_state()
            used = used or now[2:] != self._legacy[2:] or bool((now[1] != self._legacy[1]).any())
            self._numpy.set_state(self._legacy)
        return used


def _own_dispatch_key():
    """The dispatch key that the library sets on its thread (OwnDraws), which has no name in Python."""
    for value in range(128):
        try:
            key = torch._C.DispatchKey(value)
        except ValueError:
            return None
        if torch._C._dispatch_key_name(key) == "TESTING_ONLY_GenericMode":
            return key
    return None


def _admit_higher_order_operators():
    """Lets the higher-order operators that exist by now, such as flex attention, run under that key: unlike ATen's, they refuse keys for
    which they have no kernel. Nothing else uses the key."""
    for operator in list(getattr(torch._ops, "_higher_order_ops", {}).values()):
        if OWN_KEY is not None and operator.non_fallthrough_keys.has(OWN_KEY):
            operator.fallthrough(OWN_KEY)


OWN_KEY = _own_dispatch_key()


class ModelAdapter:
    """A torch.nn.Module, its replica and its losses function.

    Exceptions reach the compiled part, which turns them into a status. Until `created` is called, the trainer waits, and the
    losses function is checked for random numbers that training would draw.
    """

    def __init__(self, model, build, losses, structure, optimizer=None, train_step=None, named_optimizer=None):
        self.model = unwrap(model)
        self.refusal, parts = "", None
        try:
            parts = self._parts()
            self.sharded = parts is not None
        except ValueError as error:
            self.refusal = f"{error}; its checkpoints can be measured as they appear: ptqwatch trajectory --follow"
            self.sharded = True
        self._held = all(part.held for *_, part in parts or () if part)
        self.refusal = self.refusal or refusal_of(self.model, optimizer, parts)
        self.can_train = train_step is not None
        self._switches = switches_of(self.model)
        self._build = build
        self._losses = losses
        self._structure = structure
        self._optimizer = optimizer
        self._named_optimizer = named_optimizer  # arguments of named_view, for one in another process
        self._train_step = train_step
        self._checking = True
        self.replica = None

    def created(self):
        """The trainer goes on."""
        self._checking = False

    def live(self):
        """The trainer's tensors."""
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("a CUDA graph is being captured; call step() outside of the capture")
        self._note_switches()
        if not self.sharded:
            return [(name, local(value), is_parameter) for name, value, is_parameter in named_tensors(self.model)]
        return [(name, part.local, is_parameter, part.shape, part.offset) for name, _, is_parameter, part in self._parts()]

    def _note_switches(self):
        now = switches_of(self.model)
        for name, value in list(self._switches.items()):
            if now.get(name, value) != value:
                del self._switches[name]
                _log.warning("'%s' of the model has become %s: the copy that is measured does not know, unless losses tells it, for example "
                             "from a buffer", name, now[name])

    def _parts(self):
        return parts_of(self.model, named_tensors(self.model))

    def build(self):
        """Makes the replica: by `build`, or as a copy of the model."""
        self._losses = resolve(self._losses, "losses")
        generators = _OtherGenerators()
        try:
            replica = self._copy() if self._build is None else resolve(self._build, "build")()
        finally:
            generators.restore()
        if not isinstance(replica, torch.nn.Module):
            raise TypeError(f"build returned an object of type {type(replica).__name__}, not a torch.nn.Module")
        replica = unwrap(replica)
        for name, value, _ in named_tensors(replica):
            if type(value).__name__ == "DTensor":
                raise ValueError(f"{'the copy of the model' if self._build is None else 'the model that build returned'} has a DTensor, "
                                 f"'{name}': pass a build to watch() that makes a plain model")
            if value.is_meta:
                raise ValueError(f"build returned a model whose '{name}' is on the meta device; it must be on the CPU")
        if replica is self.model:
            raise ValueError("build returned the live model itself; it must make another one")
        self.replica = _without_wrapped_parts(replica).eval()
        return named_tensors(self.replica)

    def _copy(self):
        try:
            return copy.deepcopy(self.model)
        except Exception as error:
            raise RuntimeError(f"the model cannot be copied: {type(error).__name__}: {error}. Drop what it keeps of a forward pass, or "
                               "pass build to watch(): a function that makes such a model") from error

    def losses(self, tensors):
        """Losses of the replica: (values, weights, logits, correct, part that was left in training mode)."""
        generators = _OtherGenerators() if self._checking else None
        _admit_higher_order_operators()
        result = self._losses(self.replica, self._structure.batch(tensors))
        if generators is not None and generators.restore():
            raise RuntimeError("losses draws from Python's or NumPy's global generator; that would change the training run")
        return (*_loss_values(result), self._part_in_training())

    def _part_in_training(self):
        for name, module in self.replica.named_modules():
            if module.training:
                return f"'{name}' ({type(module).__name__})" if name else f"the replica ({type(module).__name__})"
        return ""

    def optimizer(self):
        """The optimizer's rule and state, or None."""
        if self._named_optimizer:
            return named_view(**self._named_optimizer)
        if self._optimizer is None:
            return None
        return view_of(self._optimizer, named_tensors(self.model), held=self._held)

    def train(self, index, steps, learning_rate, batch):
        """Makes one optimizer step of the replica by `train_step`."""
        self.replica.train()
        _admit_higher_order_operators()
        try:
            resolve(self._train_step, "train_step")(self.replica, CooldownStep(index, steps, learning_rate, batch))
        finally:
            self.replica.eval()


def _without_wrapped_parts(module):
    # Compiled code hides products from the capture, and has no second derivative.
    for part in module.modules():
        part._compiled_call_impl = None
        if "_original_forward" in vars(part):  # accelerate's; the other one has autocast on
            part.forward = part._original_forward
        for name, child in part._modules.items():
            if child is not None:
                part._modules[name] = unwrap(child)
    return module


def _loss_values(result):
    if isinstance(result, dict):
        known = ("values", "weights", "logits", "correct")
        for key in result:
            if key not in known:
                raise TypeError(f"losses returned a dict with the key {key!r}; known: {', '.join(known)}")
        parts = [result.get(key) for key in known]
    elif isinstance(result, tuple):
        if len(result) != 2:
            raise TypeError(f"losses returned a tuple of {len(result)}; it must be (values, weights)")
        parts = [*result, None, None]
    else:
        parts = [result, None, None, None]
    for part in parts:
        if not isinstance(part, torch.Tensor) and not (part is None and part is not parts[0]):
            raise TypeError(f"losses returned an object of type {type(part).__name__}; it must return a tensor of losses in nats, "
                            "(values, weights), or a dict of values, weights, logits and correct")
    return parts
