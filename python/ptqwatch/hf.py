"""A callback for the Trainer of Hugging Face's transformers.

    from ptqwatch.hf import PtqwatchCallback

    trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[PtqwatchCallback(probe=batches, every=500)])
"""

import os
import sys

from transformers import TrainerCallback
from transformers.trainer_callback import CallbackHandler

from ptqwatch._scalars import NewReports
from ptqwatch._subject import is_sharded
from ptqwatch._watch import watch


class PtqwatchCallback(TrainerCallback):
    """Watches the Trainer's model from the first step to the last, on the first process of a run or, if the weights are
    sharded, on all (docs/sharded.md).

    losses        as in ptqwatch.watch(); by default for causal language models, whose probe batches are dicts of `input_ids` and,
                  if needed, `attention_mask` and `labels`
    run_dir       by default "ptqwatch" in the Trainer's output directory
    finish_timeout
                  seconds to measure the last step, when training is over
    options       the other arguments of ptqwatch.watch()

    Each new report's numbers go to the Trainer's log (TensorBoard, W&B, `state.log_history`) under "ptqwatch/", at the step at
    which they became known; "ptqwatch/step" is the step that was measured. `monitor` is the Monitor, from the start of training.
    """

    def __init__(self, *, probe, losses="ptqwatch.losses:causal_lm", run_dir=None, finish_timeout=60.0, **options):
        self.monitor = None
        self._arguments = {"probe": probe, "losses": losses, **options}
        self._run_dir = run_dir
        self._finish_timeout = finish_timeout
        self._rate = None
        self._loss = None
        self._reports = None
        self._handler = None

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
        if not state.is_world_process_zero and not is_sharded(model):
            return
        if self.monitor is not None:
            self.monitor.stop()
        self._handler = _calling_handler()
        arguments = {"ranks_from_environment": False, **self._arguments}  # the others have no monitor
        arguments.setdefault("optimizer", optimizer)
        self.monitor = watch(model, run_dir=self._run_dir or os.path.join(args.output_dir, "ptqwatch"), **arguments)
        self._reports = NewReports(self.monitor)

    def on_pre_optimizer_step(self, args, state, control, optimizer=None, **kwargs):
        # When the step is over, the scheduler has set the rate of the next one.
        self._rate = [float(group["lr"]) for group in optimizer.param_groups]

    def on_step_end(self, args, state, control, **kwargs):
        if self.monitor is None or self._rate is None:
            return
        self.monitor.step(state.global_step, self._rate, state.num_input_tokens_seen or None, self._loss)
        self._loss = None
        self._log(args, state, control)

    def on_log(self, args, state, control, logs=None, **kwargs):
        # The mean since the log before this one, for the next step. Other logs, as an evaluation's, have none.
        self._loss = (logs or {}).get("loss", self._loss)

    def on_train_end(self, args, state, control, **kwargs):
        if self.monitor is None:
            return
        self.monitor.finish(self._finish_timeout)
        self._log(args, state, control)
        self.monitor.stop()

    def _log(self, args, state, control):
        logs = self._reports.take()
        if logs is None:
            return
        state.log_history.append({**logs, "step": state.global_step})
        if self._handler is not None:
            should_log = control.should_log
            self._handler.on_log(args, state, control, logs)
            control.should_log = should_log  # the Trainer's own log of this step is still to come


def _calling_handler():
    """The caller of the Trainer's callbacks: the Trainer gives them neither itself nor its log. None if there is none."""
    frame = sys._getframe(2)
    while frame is not None and not isinstance(frame.f_locals.get("self"), CallbackHandler):
        frame = frame.f_back
    return frame and frame.f_locals["self"]
