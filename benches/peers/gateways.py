"""Starts each gateway with its file in config/."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Callable

from contestant import Running
from install import ROOT
from process import Command, free_port
from redis import start_redis
from stage import Stage

Start = Callable[[Stage], Running]

# The script that a Redisson client runs to take permits.
REDISSON = ROOT / "tests" / "it" / "support" / "redisson_acquire.lua"


def tidegate(template: str, **values: object) -> Start:
    return lambda stage: start_tidegate(stage, stage.tools.tidegate, template, values)


def unoptimized_tidegate(template: str) -> Start:
    return lambda stage: start_tidegate(stage, stage.tools.unoptimized, template, {})


def start_tidegate(stage: Stage, program: Path, template: str, values: dict[str, object]) -> Running:
    port = free_port()
    config = stage.config(template, PORT=port, **values)
    command: Command = [program, "run", "-c", config, "--workers", "1"]
    return Running(port, [stage.start("tidegate", command, port)])


def tidegate_on_redis(template: str, **values: object) -> Start:
    def start(stage: Stage) -> Running:
        redis = start_redis(stage)
        # Redis may exceed the default timeout of 50 ms on a busy machine, which is not part of the measurement.
        store = f"{{ url: \"redis://127.0.0.1:{redis.port}\", timeout: 1s }}"
        running = tidegate(template, STORE=store, **values)(stage)
        return replace(running, processes=[*running.processes, redis.process], redis=redis)

    return start


def nginx(template: str, **values: object) -> Start:
    def start(stage: Stage) -> Running:
        port = free_port()
        config = stage.config(template, PORT=port, **values)
        return Running(port, [stage.start("nginx", stage.nginx(config), port)])

    return start


def nginx_on_redis(template: str, rate: int, interval_ms: int) -> Start:
    """Starts nginx with a limiter that is configured as by Redisson's `trySetRate`."""

    def start(stage: Stage) -> Running:
        redis = start_redis(stage)
        redis.run("hset", "overall", "rate", str(rate), "interval", str(interval_ms), "type", "0")
        running = nginx(template, REDIS=redis.port, SCRIPT=REDISSON)(stage)
        return replace(running, processes=[*running.processes, redis.process], redis=redis)

    return start


def haproxy(template: str, **values: object) -> Start:
    def start(stage: Stage) -> Running:
        port = free_port()
        config = stage.config(template, PORT=port, **values)
        return Running(port, [stage.start("haproxy", [stage.tools.haproxy, "-db", "-f", config], port)])

    return start


def envoy(template: str, **values: object) -> Start:
    def start(stage: Stage) -> Running:
        port = free_port()
        config = stage.config(template, PORT=port, **values)
        command: Command = [stage.tools.envoy, "-c", config, "--concurrency", "1"]
        command += ["-l", "error", "--disable-hot-restart"]
        return Running(port, [stage.start("envoy", command, port)])

    return start


def caddy(template: str) -> Start:
    def start(stage: Stage) -> Running:
        port = free_port()
        config = stage.config(template, PORT=port)
        home = {"GOMAXPROCS": "1", "HOME": str(stage.folder), "XDG_DATA_HOME": str(stage.folder)}
        command: Command = [stage.tools.caddy, "run", "--adapter", "caddyfile", "--config", config]
        return Running(port, [stage.start("caddy", command, port, env=home)])

    return start


# A gRPC message of 100 bytes: a flag for compression, the length, and the bytes.
MESSAGE = b"\0\0\0\0\x64" + bytes(100)


def grpc_upstream(stage: Stage) -> int:
    """Starts nghttpd, which responds to every call with a file and a `grpc-status` trailer."""
    methods = stage.folder / "bench.Echo"
    methods.mkdir(exist_ok=True)
    (methods / "Unary").write_bytes(MESSAGE)
    port = free_port()
    command: Command = [stage.tools.nghttpd, "--no-tls", "-n1", "-a", "127.0.0.1", "-d", stage.folder]
    stage.start("nghttpd", [*command, "--trailer", "grpc-status: 0", str(port)], port)
    return port
