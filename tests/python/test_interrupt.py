"""Ctrl-C while the compiled part works."""

import pytest

HEAD = """
    import os
    import signal
    import sys
    import threading
    import time

    import torch

    import ptqwatch

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    def losses(model, batch):
        return torch.nn.functional.mse_loss(model(batch), batch, reduction="none").mean(1)

    sent = []
    torch.set_num_threads(1)
    data = torch.randn(64, 4096)
    weight = torch.ones(8192, 4096)
    linear = torch.nn.Linear(4096, 4096)
    small = torch.nn.Linear(64, 64)
    threading.Timer(float(sys.argv[1]), interrupt).start()
    try:
"""
TAIL = """
    except KeyboardInterrupt:
        print(time.monotonic() - sent[0])
"""


# Each takes half a minute or more if it is not interrupted. A model is first run in Python for some seconds, where an interrupt would
# come through by itself.
@pytest.mark.parametrize("after, work", [
    (0.5, "ptqwatch.quantize(weight, data, method='awq')"),
    (0.5, "ptqwatch.quantize(weight, data, method='awq', threads=2)"),
    (5, "ptqwatch.quantize_model(linear, losses, [data], ['awq4'], output_head=True)"),
    (1, "ptqwatch.curvature(small, losses, [data[:, :64]] * 8, scope='all_parameters', max_trace_probes=10**6, trace_relative_stderr=1e-9)"),
])
def test_an_interrupt_ends_the_work(start_script, after, work):
    seconds = float(start_script(HEAD + "        " + work + TAIL, str(after)).end())
    assert 0 < seconds < 5
