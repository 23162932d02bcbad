"""The environment of the measured programs: a temporary folder, their configuration files, and the common upstream."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from install import Tools
from process import START_SECONDS, Command, MeasurementError, Process, free_port
from tls import make_certificate

CONFIG = Path(__file__).resolve().parent / "config"


class Stage:
    """Starts programs. Stops all of them at the end."""

    def __init__(self, tools: Tools):
        self.tools = tools
        self.folder = Path(tempfile.mkdtemp(prefix="tidegate-peers-"))
        self.processes: list[Process] = []
        self.configs = 0
        self.upstream = 0
        self.targets = ""

    def __enter__(self) -> Stage:
        try:
            make_certificate(self.tools.openssl, self.folder)
            (self.folder / "bodies").mkdir()
            self.upstream = free_port()
            addresses = [f"http://127.0.0.{number}:{self.upstream}" for number in (1, 2)]
            self.targets = f"{json.dumps(addresses)}, health: {{ path: /, interval: 1s }}"
            config = self.config("upstream.conf", PORT=self.upstream)
            self.start("upstream", self.nginx(config), self.upstream)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_from(0)
        shutil.rmtree(self.folder, ignore_errors=True)

    def nginx(self, config: Path) -> Command:
        return [self.tools.nginx, "-e", "stderr", "-p", self.folder, "-c", config]

    def config(self, template: str, **values: object) -> Path:
        """Writes a file of `config/`, or of another folder, with its `@NAMES@` replaced, and returns its path."""
        values.setdefault("UPSTREAM", self.upstream)
        values.setdefault("TARGETS", self.targets)
        values.update(FOLDER=self.folder, CONFIG=CONFIG)
        text = (CONFIG / template).read_text()
        for name, value in values.items():
            text = text.replace(f"@{name}@", str(value))
        if left := re.findall(r"@[A-Z_]+@", text):
            raise MeasurementError(f"{template}: no value for {', '.join(left)}")
        self.configs += 1
        path = self.folder / f"{self.configs}-{Path(template).name}"
        path.write_text(text)
        return path

    def start(
        self,
        name: str,
        command: Command,
        port: int,
        env: dict[str, str] | None = None,
        seconds: float = START_SECONDS,
    ) -> Process:
        """Starts a program, and waits until it listens on `port`, for at most `seconds`."""
        process = Process(name, command, self.folder / f"{len(self.processes)}-{name}.log", env)
        self.processes.append(process)
        process.wait_for(port, seconds=seconds)
        return process

    @contextmanager
    def scene(self) -> Iterator[None]:
        """Stops all programs that are started within the context."""
        before = len(self.processes)
        try:
            yield
        finally:
            self.stop_from(before)

    @contextmanager
    def upstream_at(self, port: int) -> Iterator[None]:
        """Sets the upstream of all programs that are started within the context. It may stop at times, so it has no health
        checks."""
        before = self.upstream, self.targets
        self.upstream, self.targets = port, f'["http://127.0.0.1:{port}"]'
        try:
            yield
        finally:
            self.upstream, self.targets = before

    def stop_from(self, first: int) -> None:
        while len(self.processes) > first:
            self.processes.pop().stop()
