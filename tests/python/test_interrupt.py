"""Ctrl-C while the compiled part works."""

import pytest

HEAD = """
    import os
    import signal
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
    threading.Timer(0.5, interrupt).start()
    try:
"""
TAIL = """
    except KeyboardInterrupt:
        print(time.monotonic() - sent[0])
"""


# Each takes a minute if it is not interrupted.
@pytest.mark.parametrize("work", [
    "ptqwatch.quantize(torch.randn(8192, 4096), data, method='awq')",
    "ptqwatch.quantize(torch.randn(8192, 4096), data, method='awq', threads=2)",
    "ptqwatch.gram(torch.randn(40_000, 4096))",
    "ptqwatch.quantize_model(torch.nn.Linear(4096, 4096), losses, [data], ['awq4'], output_head=True)",
    "ptqwatch.curvature(torch.nn.Linear(64, 64), losses, [data[:, :64]] * 8, scope='all_parameters', max_trace_probes=10**6, trace_relative_stderr=1e-9)",
])
def test_an_interrupt_ends_the_work(start_script, work):
    seconds = float(start_script(HEAD + "        " + work + TAIL).end())
    assert 0 < seconds < 5
