"""Redis servers of the run's own, and what they say of themselves."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from process import Command, Failed, Process, free_port
from stage import Stage


@dataclass(frozen=True)
class Redis:
    port: int
    process: Process
    stage: Stage

    def ask(self, *command: str) -> str:
        """The reply of a command, as redis-cli writes it."""
        words = ["redis-cli", "-p", str(self.port), *command]
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=10, stdin=subprocess.DEVNULL
        )
        if done.returncode or done.stdout.startswith("ERR"):
            raise Failed(f"redis-cli: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def script_calls(self) -> int:
        """How many scripts it has run so far."""
        return self.calls("evalsha", "eval", "fcall")

    def calls(self, *commands: str) -> int:
        """How often it has run these commands so far, those of scripts included."""
        names = tuple(f"cmdstat_{command}:" for command in commands)
        lines = [line for line in self.ask("info", "commandstats").splitlines() if line.startswith(names)]
        return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)


def start_redis(stage: Stage, *settings: str) -> Redis:
    """A server with nothing in it, which writes no data to disk."""
    port = free_port()
    command: Command = [stage.tools.redis, "--port", str(port), "--bind", "127.0.0.1"]
    command += ["--save", "", "--appendonly", "no", "--dir", stage.folder, "--daemonize", "no", *settings]
    return Redis(port, stage.start("redis", command, port), stage)
