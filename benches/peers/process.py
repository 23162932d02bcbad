"""Processes that a run starts: their CPU time, their memory, and their end."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

START_SECONDS = 20.0
STOP_SECONDS = 5.0
Command = list[str | Path]

TICK = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """Something that was to be measured did not do what it should."""


class Process:
    """A program and its children, in a process group of its own. Its output goes to a file."""

    def __init__(self, name: str, command: Command, log: Path, env: dict[str, str] | None = None):
        self.name = name
        self.log = log
        environment = {**os.environ, **(env or {})}
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )

    def wait_for(self, port: int) -> None:
        """Returns when somebody listens on this port of the loopback."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if self.popen.poll() is not None:
                raise Failed(f"{self.name} ended with {self.popen.returncode}: {self.last_words()}")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise Failed(f"{self.name} does not listen: {self.last_words()}")

    def cpu_seconds(self) -> float:
        """User and system time of all its threads and children so far, from /proc/PID/stat."""
        return sum(cpu_seconds_of(pid) for pid in self.pids())

    def memory_bytes(self) -> int:
        """The proportional set size of the program and its children: shared pages are counted once."""
        return sum(pss_bytes_of(pid) for pid in self.pids())

    def pids(self) -> list[int]:
        """Itself and its descendants."""
        parents = {int(entry): parent_of(int(entry)) for entry in os.listdir("/proc") if entry.isdigit()}
        family, generation = [], [self.popen.pid]
        while generation:
            family += generation
            generation = [pid for pid, parent in parents.items() if parent in generation]
        return family

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:]) or "it said nothing"

    def stop(self) -> None:
        """Ends it, politely first. Does nothing if it has ended."""
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self.popen.pid, signal.SIGKILL)
                self.popen.wait()


def free_port() -> int:
    """A port that nobody uses, below those that the system gives to clients: none of them can take it meanwhile."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, max(20_000, lowest))
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("0.0.0.0", port))
            return port


def parent_of(pid: int) -> int:
    fields = stat_of(pid)  # read once: it may be gone the next time
    return int(fields[1]) if fields else 0


def cpu_seconds_of(pid: int) -> float:
    fields = stat_of(pid)
    return (int(fields[11]) + int(fields[12])) / TICK if fields else 0.0


def stat_of(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on; none if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def pss_bytes_of(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise Failed(f"no proportional set size of process {pid}")
