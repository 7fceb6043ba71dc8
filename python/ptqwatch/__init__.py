"""Will this model survive post-training quantization? ptqwatch answers while the model trains.

watch           watches a training run
quantize        quantizes a weight matrix
quantize_model  quantizes a model
curvature       measures the Hessian of a model's loss
read_run        reads the reports of a run

ptqwatch.hf and ptqwatch.lightning have callbacks for the Trainers of Hugging Face and Lightning. python -m ptqwatch.dcp converts
checkpoints of torch.distributed.checkpoint.
"""

from ptqwatch._check_torch import check_torch as _check_torch

_check_torch()  # before the extension module, which another torch would not load

from ptqwatch._build import VERSION as __version__
from ptqwatch._curvature import Curvature, Eigenpair, HessianTrace, curvature
from ptqwatch._monitor import Monitor
from ptqwatch._quantize import (Gram, ModelQuantization, QuantizedLayer, QuantizedWeight, QuantizerFields, gram,
                                quantize, quantize_model)
from ptqwatch._runs import program as _program, read_run
from ptqwatch._watch import watch

__all__ = [
    "Curvature", "Eigenpair", "Gram", "HessianTrace", "ModelQuantization", "Monitor", "QuantizedLayer",
    "QuantizedWeight", "QuantizerFields", "curvature", "gram", "quantize", "quantize_model", "read_run", "watch",
]
