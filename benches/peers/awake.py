"""Keeps the processors awake during latency measurements."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import Iterator

# While this file is open, the system uses no sleep state with a longer wake-up time than the written one (Linux,
# pm_qos). Tools that measure the latency of the system, such as cyclictest, do the same.
LATENCY = "/dev/cpu_dma_latency"


@contextmanager
def awake() -> Iterator[None]:
    """Keeps idle processors polling instead of sleeping. Waking a processor takes longer than the measured times, above
    all in a virtual machine, and the measured programs cannot change that. Needs root; without it, this does
    nothing."""
    try:
        file = open(LATENCY, "wb", buffering=0)
    except OSError:
        yield
        return
    with file:
        file.write(struct.pack("i", 0))
        yield
