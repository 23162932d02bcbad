"""Keeps the processors awake, for what is timed and not counted."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import Iterator

# While this file is open, no processor sleeps from which it takes longer to wake than was written (Linux, pm_qos).
# Tools that time the system itself, such as cyclictest, do the same.
LATENCY = "/dev/cpu_dma_latency"


@contextmanager
def awake() -> Iterator[None]:
    """While this lasts, processors that have nothing to do poll for work. To wake one that sleeps, most of all one of a
    virtual machine, takes longer than what is to be timed, and the timed programs cannot help it. Needs root; without
    it, the processors sleep as they like."""
    try:
        file = open(LATENCY, "wb", buffering=0)
    except OSError:
        yield
        return
    with file:
        file.write(struct.pack("i", 0))
        yield
