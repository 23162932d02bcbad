"""Starts a Redis with a replica and a sentinel, and kills the primary."""

from __future__ import annotations

import time
from typing import Callable

from process import START_SECONDS, Command, MeasurementError, Process, free_port
from redis import Redis, start_redis
from stage import Stage

MASTER = "limits"
# In milliseconds: how long a server does not respond until the sentinel replaces it.
DOWN_AFTER = 500


def start_sentinel(stage: Stage) -> tuple[int, Process]:
    """Returns the port of the sentinel, and the primary."""
    primary = start_redis(stage)
    replica = start_redis(stage, "--replicaof", "127.0.0.1", str(primary.port), "--repl-diskless-sync-delay", "0")
    wait_for(lambda: "state=online" in primary.run("info", "replication"), f"the replica at {replica.port} does not follow")
    port = free_port()
    config = stage.folder / f"sentinel-{port}.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {stage.folder}\n"
        f"sentinel monitor {MASTER} 127.0.0.1 {primary.port} 1\n"
        f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER}\nsentinel failover-timeout {MASTER} 3000\n"
    )
    command: Command = [stage.tools.redis, config, "--sentinel"]
    sentinel = Redis(port, stage.start("sentinel", command, port), stage)
    wait_for(lambda: "master-link-status\nok" in sentinel.run("sentinel", "replicas", MASTER), "the sentinel finds no replica")
    return port, primary.process


def wait_for(condition: Callable[[], bool], fault: str) -> None:
    end = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise MeasurementError(fault)
        time.sleep(0.1)


def kill(process: Process) -> None:
    process.popen.kill()
    process.popen.wait()
