"""Starts processes, measures their CPU time and memory, and stops them."""

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


class MeasurementError(Exception):
    """A measured program did not work as expected."""


class Process:
    """A program and its children, in a new session and process group. Its output goes to a file."""

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

    def wait_for(self, port: int, address: str = "127.0.0.1", seconds: float = START_SECONDS) -> None:
        """Waits until a program listens on `port` of an address of the loopback interface, for at most `seconds`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.popen.poll() is not None:
                raise MeasurementError(f"{self.name} exited with {self.popen.returncode}: {self.last_output()}")
            try:
                socket.create_connection((address, port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise MeasurementError(f"{self.name} does not listen: {self.last_output()}")

    def cpu_seconds(self) -> float:
        """Returns the user and system time of all its threads and children so far, from /proc/PID/stat."""
        return sum(cpu_seconds_of(pid) for pid in self.pids())

    def memory_bytes(self) -> int:
        """Returns the proportional set size of the program and its children, in which shared pages count once."""
        return sum(pss_bytes_of(pid) for pid in self.pids())

    def pids(self) -> list[int]:
        """Returns the process IDs of the program and its descendants."""
        parents = {int(entry): parent_of(int(entry)) for entry in os.listdir("/proc") if entry.isdigit()}
        family, generation = [], [self.popen.pid]
        while generation:
            family += generation
            generation = [pid for pid, parent in parents.items() if parent in generation]
        return family

    def last_output(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:]) or "no output"

    def stop(self) -> None:
        """Stops the program: first with SIGTERM, then with SIGKILL. Does nothing if it has exited."""
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self.popen.pid, signal.SIGKILL)
                self.popen.wait()


def free_port() -> int:
    """Returns an unused port below the range from which the system assigns client ports, so that no client takes it."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, max(20_000, lowest))
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("0.0.0.0", port))
            return port


def parent_of(pid: int) -> int:
    fields = stat_of(pid)  # read once, because the process may exit
    return int(fields[1]) if fields else 0


def cpu_seconds_of(pid: int) -> float:
    fields = stat_of(pid)
    return (int(fields[11]) + int(fields[12])) / TICK if fields else 0.0


def stat_of(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat from the third on, or none if the process has exited."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def pss_bytes_of(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise MeasurementError(f"no proportional set size of process {pid}")
