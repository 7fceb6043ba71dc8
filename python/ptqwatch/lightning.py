"""A callback for the Trainer of Lightning.

    from ptqwatch.lightning import PtqwatchCallback

    trainer = Trainer(callbacks=[PtqwatchCallback(losses=token_losses, probe=batches, every=500)])
"""

import os

import torch

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from ptqwatch._scalars import NewReports
from ptqwatch._subject import is_sharded
from ptqwatch._watch import watch


class PtqwatchCallback(Callback):
    """Watches the LightningModule from the first step of the optimizer to the last, on the first process of a run or, if the weights are
    sharded, on all (docs/sharded.md).

    losses, probe, build, options
                  as in ptqwatch.watch(); `losses` gets a copy of the LightningModule
    run_dir       by default "ptqwatch" in the Trainer's root directory
    finish_timeout
                  seconds to measure the last step, when training is over

    Each new report's numbers go to the Trainer's loggers under "ptqwatch/", at the step at which they became known;
    "ptqwatch/step" is the step that was measured. `monitor` is the Monitor, from the start of training. Tokens are unknown to
    Lightning, so reports have steps alone.
    """

    def __init__(self, *, losses, probe, run_dir=None, finish_timeout=60.0, **options):
        super().__init__()
        self.monitor = None
        self._arguments = {"probe": probe, "losses": losses, **options}
        self._run_dir = run_dir
        self._finish_timeout = finish_timeout
        self._rate = None
        self._step = 0
        self._reports = None

    def on_train_start(self, trainer, pl_module):
        whole = trainer.strategy.model  # FSDPStrategy's root is around the module; ModelParallelStrategy has the module itself
        sharded = isinstance(whole, torch.nn.Module) and is_sharded(whole)
        if not trainer.is_global_zero and not sharded:
            return
        model = whole if sharded else pl_module
        if self.monitor is not None:
            self.monitor.stop()
        arguments = {"ranks_from_environment": False, **self._arguments}  # the others have no monitor
        if trainer.optimizers:
            arguments.setdefault("optimizer", trainer.optimizers[0])
        self.monitor = watch(
            model, run_dir=self._run_dir or os.path.join(trainer.default_root_dir, "ptqwatch"), **arguments)
        self._reports = NewReports(self.monitor)
        self._step = trainer.global_step

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        # When the batch is over, the scheduler has set the rate of the next step.
        self._rate = [float(group["lr"]) for group in optimizer.param_groups]

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        # With gradient accumulation, most batches make no step.
        if self.monitor is None or trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if isinstance(loss, torch.Tensor):
            # Lightning has divided it. Reading one on a GPU would wait for the GPU.
            loss = float(loss) * trainer.accumulate_grad_batches if loss.device.type == "cpu" else None
        self.monitor.step(self._step, self._rate, None, loss)
        self._log(trainer)

    def on_train_end(self, trainer, pl_module):
        if self.monitor is None:
            return
        self.monitor.finish(self._finish_timeout)
        self._log(trainer)
        self.monitor.stop()

    def on_exception(self, trainer, pl_module, exception):
        if self.monitor is not None:
            self.monitor.stop()

    def _log(self, trainer):
        values = self._reports.take()
        if values is None:
            return
        values.pop("ptqwatch/verdict")  # loggers take numbers
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)
