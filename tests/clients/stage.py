"""A gateway and the servers behind it, on free ports, ended with the run."""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import grpc
import grpc_server

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent


class Stage:
    """What the checks talk to."""

    def __init__(self, program: Path):
        self.program = program.resolve()
        self.folder = FOLDER
        self._stack = ExitStack()
        self._names = itertools.count()

    def __enter__(self) -> Stage:
        self.scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self.grpc = grpc_server.Server()
        self._stack.callback(lambda: self.grpc.stop())
        (self.address,) = self.start_gateway(
            FOLDER / "rules.yaml",
            ORIGIN=f"127.0.0.1:{self.start_node('origin.mjs')}",
            GRPC=self.grpc.port,
        )
        self.url = f"http://{self.address}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def grpc_channel(self, options: list[tuple[str, object]]) -> grpc.Channel:
        return grpc.insecure_channel(self.address, options)

    def name(self) -> str:
        """A name that nobody has had: a client whose limits are untouched."""
        return f"name-{next(self._names)}"

    def write(self, name: str, text: str) -> Path:
        path = self.scratch / name
        path.write_text(text)
        return path

    def start_node(self, script: str, *arguments: object) -> int:
        """Starts a server that prints its port first."""
        server = self.start("node", FOLDER / script, *arguments)
        assert server.stdout
        return int(server.stdout.readline())

    def start_gateway(self, template: Path, **values: object) -> list[str]:
        """Starts a gateway; returns the addresses that it listens on, in the order of its rule file."""
        text = template.read_text()
        for name, value in values.items():
            text = text.replace(f"@{name}@", str(value))
        rules = self.write(f"{self.name()}.yaml", text)
        gateway = self.start(self.program, "run", "-c", rules, "--workers", "2", stderr=subprocess.PIPE)
        said, addresses = "", []
        for line in gateway.stderr or ():
            said += line
            if listens := re.search(r"listening on (\S+)", line):
                addresses.append(listens[1].partition("://")[2] or listens[1])
            if "admin on" in line:
                self._stack.callback(gateway.stderr.close)
                return addresses
        raise RuntimeError(f"the gateway does not start: {said}")

    def start(self, *command: object, stderr: int | None = None) -> subprocess.Popen[str]:
        """Starts a program that is ended with the run."""
        words = [str(word) for word in command]
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=self.scratch
        )
        self._stack.callback(end, process)
        return process


def end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
