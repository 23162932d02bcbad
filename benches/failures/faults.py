"""The rows: how one of the three upstreams fails."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import dataclass
from typing import Awaitable, Callable

from upstreams import Upstreams

# The seconds for which an upstream that was removed from DNS still serves.
GRACE = 2.0


@dataclass(frozen=True)
class Fault:
    """A fault. `inject` starts it and returns at the end of the cell, a time of the monotonic clock, or before. With
    `needs_names`, gateways find the upstreams by DNS."""

    name: str
    title: str
    inject: Callable[[Upstreams, float], Awaitable[None]]
    needs_names: bool = False


def signaled(number: signal.Signals) -> Callable[[Upstreams, float], Awaitable[None]]:
    async def inject(upstreams: Upstreams, _: float) -> None:
        upstreams.signal(number)

    return inject


async def restart(upstreams: Upstreams, end: float) -> None:
    while time.monotonic() + 1 < end:
        await asyncio.to_thread(upstreams.restart)
        await asyncio.sleep(1)


async def remove(upstreams: Upstreams, _: float) -> None:
    upstreams.names.remove(upstreams.failing)
    await asyncio.sleep(GRACE)
    upstreams.kill()


FAULTS = [
    Fault("killed", "killed", signaled(signal.SIGKILL)),
    Fault("frozen", "frozen (SIGSTOP)", signaled(signal.SIGSTOP)),
    Fault("errors", "answers 500", signaled(signal.SIGUSR1)),
    Fault("slow", "answers after 1 s", signaled(signal.SIGUSR2)),
    Fault("restarts", "killed and restarted every second", restart),
    Fault("dns", f"removed from DNS, killed {GRACE:.0f} s later", remove, needs_names=True),
]
