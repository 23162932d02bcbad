"""Runs the scripts of envoyproxy/ratelimit's integration test: curl, through Envoy with its configuration, to Tidegate."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import expected
import setup
from process import Command, free_port
from source import Source

TIMEOUT = 180


class Example(setup.Setup):
    """Tidegate and Envoy with the files of examples/, and its two upstreams."""

    def __init__(self, tree: Source, programs: setup.Programs):
        super().__init__(programs)
        self.examples = tree.folder / "examples"
        self.port, service, upstreams = free_port(), free_port(), (free_port(), free_port())
        rules = self.folder / "rules.yaml"
        rules.write_text(
            f"store: memory\nadmin: off\nservice:\n  grpc: 127.0.0.1:{service}\n"
            f"  descriptors: {self.examples}/ratelimit/config/*.yaml\n  dynamic_metadata: true\n"
        )
        self.start("tidegate", [programs.tidegate, "run", "-c", rules, "--workers", "1"], service)
        ports = {9999: upstreams[0], 10001: upstreams[1], 8888: self.port, 8081: service}
        self.envoy_with("mock.yaml", ports, upstreams[0])
        self.envoy_with("proxy.yaml", ports, self.port)

    def envoy_with(self, name: str, ports: dict[int, int], port: int) -> None:
        """Starts Envoy with a file of examples/envoy, on loopback and without an admin listener. The service may answer
        later than in the default of 20 ms, so that a busy machine fails no test."""
        text = (self.examples / "envoy" / name).read_text()
        text = re.sub(r"^admin:\n(?: .*\n)+", "", text, flags=re.M)
        text = re.sub(r"address: (0\.0\.0\.0|ratelimit|envoy-mock)$", "address: 127.0.0.1", text, flags=re.M)
        text = re.sub(r"^( +)failure_mode_deny: .*\n", r"\g<0>\1timeout: 5s\n", text, flags=re.M)
        for before, after in ports.items():
            text = re.sub(rf"port_value: {before}$", f"port_value: {after}", text, flags=re.M)
        config = self.folder / f"{port}.yaml"
        config.write_text(text)
        node = ["--service-node", "proxy", "--service-cluster", "proxy"]
        command: Command = [self.programs.envoy, "-c", config, "--concurrency", "1", "-l", "error", *node]
        self.start("envoy", [*command, "--disable-hot-restart"], port)


def run(tree: Source, programs: setup.Programs) -> list[str]:
    """Runs all scripts at the same time, each with its own programs. Returns the faults."""
    scripts = tree.scripts()
    with ThreadPoolExecutor(len(scripts)) as pool:
        results = list(pool.map(lambda script: run_one(script, tree, programs), scripts))
    faults = []
    used = set()
    for script, failure in zip(scripts, results):
        name = f"scripts/{script.name}"
        reason = expected.reason(name, "script") if failure else None
        used |= {(name, "script")} if reason else set()
        if failure and not reason:
            faults.append(f"{name}: {failure}")
        print(f"  {'different' if reason else 'FAILED   ' if failure else 'same     '}  {name}{f': {reason}' if reason else ''}")
    faults += expected.faults(used)
    if tree.is_compared_commit:
        faults += [f"{name} {word}: listed, but not found" for name, word in expected.unused(used, is_script=True)]
    return faults


def run_one(script: Path, tree: Source, programs: setup.Programs) -> str | None:
    """Runs a script. Returns its output if it fails."""
    with Example(tree, programs) as example:
        text = script.read_text().replace("envoy-proxy:8888", f"127.0.0.1:{example.port}")
        done = subprocess.run(
            ["bash", "-c", text], capture_output=True, text=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL, check=False
        )
    return f"exit code {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}" if done.returncode else None
