"""Batches as lists of tensors, and back as the losses function takes them."""

from collections.abc import Mapping

import torch


class Structure:
    """How the tensors of a batch are arranged: alone, in a sequence, or under names."""

    def __init__(self, batch):
        self.kind = dict if isinstance(batch, Mapping) else type(batch)
        self.names = tuple(batch) if isinstance(batch, Mapping) else None

    def tensors(self, batch, where):
        """The tensors of `batch`. TypeError, naming `where`, if it is arranged differently; ValueError if it is empty."""
        if Structure(batch) != self:
            raise TypeError(f"{where} is {Structure(batch)}, and the first probe batch {self}")
        if self.kind is dict:
            named = [(f"{where}[{name!r}]", batch[name]) for name in self.names]
        elif issubclass(self.kind, (tuple, list)):
            named = [(f"{where}[{i}]", value) for i, value in enumerate(batch)]
        else:
            named = [(where, batch)]
        for name, value in named:
            if not isinstance(value, torch.Tensor):
                raise TypeError(
                    f"{name} is of type {type(value).__name__}; a batch is a tensor, or a tuple, list or dict of tensors")
            if value.layout != torch.strided:
                raise TypeError(f"{name} has the layout {value.layout}; it must be dense")
        if not named or named[0][1].shape[:1] == (0,):
            raise ValueError(f"{where} has no sequences" if named else f"{where} has no tensors")
        return [value for _, value in named]

    def batch(self, tensors):
        """The batch that consists of these tensors."""
        if self.kind is dict:
            return dict(zip(self.names, tensors))
        if issubclass(self.kind, tuple) and hasattr(self.kind, "_fields"):
            return self.kind(*tensors)
        if issubclass(self.kind, (tuple, list)):
            return self.kind(tensors)
        return tensors[0]

    def __eq__(self, other):
        return (issubclass(self.kind, torch.Tensor) and issubclass(other.kind, torch.Tensor)) or (
            self.kind is other.kind and self.names == other.names)

    def __repr__(self):
        return f"a dict of {', '.join(map(str, self.names))}" if self.kind is dict else f"a {self.kind.__name__}"


def flatten(batches, name, structure=None):
    """The batches as lists of tensors, and their common structure, which is `structure` if it is given.

    `name` is the argument's for messages. TypeError for anything but a list or tuple of batches: iterating over a DataLoader
    draws random numbers that training would draw.
    """
    if isinstance(batches, torch.Tensor) or not isinstance(batches, (list, tuple)):
        raise TypeError(f"{name} is of type {type(batches).__name__}; it must be a list of batches")
    lists = []
    for i, batch in enumerate(batches):
        structure = structure or Structure(batch)
        lists.append(structure.tensors(batch, f"{name}[{i}]"))
    return lists, structure
