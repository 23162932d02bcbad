"""Starts Redis servers, and reads their statistics."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from process import Command, MeasurementError, Process, free_port
from stage import Stage


@dataclass(frozen=True)
class Redis:
    port: int
    process: Process
    stage: Stage

    def run(self, *command: str) -> str:
        """Runs a command, and returns its reply as redis-cli prints it."""
        words = ["redis-cli", "-p", str(self.port), *command]
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=10, stdin=subprocess.DEVNULL
        )
        if done.returncode or done.stdout.startswith("ERR"):
            raise MeasurementError(f"redis-cli: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def script_calls(self) -> int:
        """Returns the number of script calls so far."""
        return self.calls("evalsha", "eval", "fcall")

    def calls(self, *commands: str) -> int:
        """Returns the number of calls of these commands so far, also from scripts."""
        names = tuple(f"cmdstat_{command}:" for command in commands)
        lines = [line for line in self.run("info", "commandstats").splitlines() if line.startswith(names)]
        return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)


def start_redis(stage: Stage, *settings: str) -> Redis:
    """Starts an empty server without persistence."""
    port = free_port()
    command: Command = [stage.tools.redis, "--port", str(port), "--bind", "127.0.0.1"]
    command += ["--save", "", "--appendonly", "no", "--dir", stage.folder, "--daemonize", "no", *settings]
    return Redis(port, stage.start("redis", command, port), stage)
