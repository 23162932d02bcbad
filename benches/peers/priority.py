"""Lets other programs wait for those that are measured."""

from __future__ import annotations

import os


def go_first() -> None:
    """This process, and all that it starts from now on, go before all programs of usual priority (SCHED_RR), and are equals
    among themselves. Needs root; without it, they share the processors with what else runs."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (AttributeError, OSError):
        pass
