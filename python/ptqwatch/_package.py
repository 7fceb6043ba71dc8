"""What a worker needs to make the model and call its functions, as bytes.

Functions and classes go by the name under which they can be imported. Those of the trainer's main script are found by importing
that script in the worker, as multiprocessing does, so its training loop must be under `if __name__ == "__main__":`. Weights are
left out: they come from the shared memory.
"""

import io
import os
import pickle
import sys
from multiprocessing import spawn
from typing import NamedTuple

import torch

from ptqwatch._subject import named_tensors

GUARD_ADVICE = ("Put what trains under `if __name__ == '__main__':`, or pass build and losses as 'module:function' of another "
                "module")


class _WithoutWeights:
    """A part of a pickler: leaves out a model's weights."""

    def __init__(self, file, weights):
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._places = {id(tensor): place for place, tensor in enumerate(weights)}

    def persistent_id(self, value):
        if not isinstance(value, torch.Tensor) or id(value) not in self._places:
            return None
        kind = "parameter" if isinstance(value, torch.nn.Parameter) else "tensor"
        return kind, self._places[id(value)], tuple(value.shape), str(value.dtype).removeprefix("torch."), value.requires_grad


class _Pickler(_WithoutWeights, pickle.Pickler):
    """By name."""


def _pickler_by_value():
    try:
        import cloudpickle
    except ImportError as error:
        raise ValueError(f"worker['cloudpickle'] = True: {error}; pip install cloudpickle") from error
    return type("_PicklerByValue", (_WithoutWeights, cloudpickle.CloudPickler), {})


class _Unpickler(pickle.Unpickler):
    """Makes other weights of the same shapes, on the CPU."""

    def __init__(self, file):
        super().__init__(file)
        self._made = {}

    def persistent_load(self, identity):
        kind, place, shape, dtype, requires_grad = identity
        if place not in self._made:
            tensor = torch.zeros(shape, dtype=getattr(torch, dtype))
            self._made[place] = torch.nn.Parameter(tensor, requires_grad) if kind == "parameter" else tensor
        return self._made[place]


class _Part(NamedTuple):
    """An argument of watch()."""

    shown: str  #: its name and value, for messages
    data: bytes


def _dumps(name, value, cloudpickle, weights=()):
    shown = f"{name} = {type(value).__name__ if name == 'model' else value!r}"
    advice = ("Pass build, a function that makes such a model" if name == "model" else
              "Define it in a module or at the top level of the script, or pass 'module:function'")
    pickler = _pickler_by_value() if cloudpickle else _Pickler
    file = io.BytesIO()
    try:
        pickler(file, weights).dump(value)
    except Exception as error:  # whatever an object's own __reduce__ raises
        raise ValueError(f"{shown}: the monitor's process cannot import it: {error}. {advice}; in a notebook, pass "
                         "worker={'cloudpickle': True}; or use mode='thread'") from error
    data = file.getvalue()
    if _names_main(data) and not cloudpickle and not _main_script():
        raise ValueError(
            f"{shown} is defined in __main__, which is no file that the monitor's process could import: define it in a module, pass "
            "worker={'cloudpickle': True}, or use mode='thread'")
    return _Part(shown, data)


def _names_main(data):
    # In a process that multiprocessing has spawned, functions of the main script belong to __mp_main__.
    return b"__main__" in data or b"__mp_main__" in data


def _loads(part):
    try:
        return pickle.loads(part.data)
    except BaseException as error:  # of the module that is imported for it
        raise ImportError(f"{part.shown}: the monitor's process cannot import it: {type(error).__name__}: {error}") from error


def _main_script():
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    return getattr(main, "__spec__", None) is not None or (path is not None and os.path.exists(path))


def pack(model, build, losses, structure, train_step=None, cloudpickle=False):
    """What `unpack` takes, and whether they need the main script. ValueError, naming the argument, for what cannot be
    imported."""
    parts = {"losses": _dumps("losses", losses, cloudpickle), "structure": _dumps("probe", structure, cloudpickle),
             "train_step": _dumps("train_step", train_step, cloudpickle)}
    if build is not None:
        parts["build"] = _dumps("build", build, cloudpickle)
    else:
        parts["model"] = _dumps("model", model, cloudpickle, [tensor for _, tensor, _ in named_tensors(model)])
    return parts, not cloudpickle and any(_names_main(part.data) for part in parts.values())


def surroundings(needs_main):
    """The trainer's working directory, module path, arguments and main script."""
    data = spawn.get_preparation_data("ptqwatch.worker")
    keep = ["sys_path", "sys_argv", "dir", "orig_dir"]
    if needs_main:
        keep += ["init_main_from_name", "init_main_from_path"]
    return {key: data[key] for key in keep if key in data}


def enter(data):
    """Makes this process's surroundings those of the trainer. ImportError if its main script cannot be imported."""
    try:
        spawn.prepare(data)
    except BaseException as error:  # SystemExit, too: a script without a guard may raise it
        script = data.get("init_main_from_path") or data.get("init_main_from_name")
        if not script:
            raise
        advice = "" if GUARD_ADVICE in str(error) else f". {GUARD_ADVICE}"
        raise ImportError(f"the monitor's process could not import the training script '{script}': {type(error).__name__}: {error}"
                          f"{advice}") from error


def unpack(parts):
    """(build, losses, structure, train_step) of what was packed. ImportError, naming the argument, if importing raises."""
    losses, structure, train_step = (_loads(parts[name]) for name in ("losses", "structure", "train_step"))
    build = _loads(parts["build"]) if "build" in parts else lambda: _Unpickler(io.BytesIO(parts["model"].data)).load()
    return build, losses, structure, train_step
