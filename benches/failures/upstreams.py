"""The three upstream processes, and the DNS server that names them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from names import Names
from process import Process

SERVER = Path(__file__).resolve().parent / "upstream_server.py"

# The addresses of the upstreams, which share a port, so that one name can stand for all.
ADDRESSES = ["127.0.1.1", "127.0.1.2", "127.0.1.3"]


class Upstreams:
    """Three upstream processes. The last one fails. Stops all of them at the end."""

    def __init__(self, folder: Path, port: int):
        self.folder, self.port = folder, port
        self.processes: dict[str, Process] = {}
        self.names = Names(ADDRESSES)

    def __enter__(self) -> Upstreams:
        try:
            for address in ADDRESSES:
                self.start(address)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.names.stop()
        for process in self.processes.values():
            kill(process)

    @property
    def failing(self) -> str:
        """The address of the upstream that fails."""
        return ADDRESSES[-1]

    def start(self, address: str) -> None:
        command = [sys.executable, "-B", "-S", SERVER, address, str(self.port)]
        process = Process("upstream", command, self.folder / f"upstream-{address}.log")
        self.processes[address] = process
        process.wait_for(self.port, address)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the upstream that fails."""
        os.kill(self.processes[self.failing].popen.pid, number)

    def kill(self) -> None:
        """Kills the upstream that fails."""
        kill(self.processes[self.failing])

    def restart(self) -> None:
        """Kills the upstream that fails, and starts it again."""
        self.kill()
        self.start(self.failing)


def kill(process: Process) -> None:
    """Ends a process with SIGKILL, which also ends a stopped process."""
    process.popen.kill()
    process.popen.wait()
