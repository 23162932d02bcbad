"""Starts Envoy with envoyproxy/ratelimit, a service that keeps its limits in Redis."""

from __future__ import annotations

import time
from dataclasses import replace

from contestant import Running
from gateways import Start, envoy
from install import ratelimit_environment
from process import START_SECONDS, MeasurementError, Process, free_port
from redis import Redis, start_redis
from stage import Stage

# The time for which the service buffers its writes to Redis to send them together: the minimum that its documentation
# recommends.
WINDOW = "150us"
SLOTS = ("0", "16383")


def envoy_with_ratelimit(overall: int, per_address: int, buffered: bool = False) -> Start:
    """Starts Envoy with a service that writes the commands of each request immediately, or `buffered`. The service
    buffers only writes to a Redis Cluster, so `buffered` uses a cluster with one node."""

    def start(stage: Stage) -> Running:
        redis = start_cluster(stage) if buffered else start_redis(stage)
        port = free_port()
        service = start_service(stage, port, redis, buffered, OVERALL=overall, PER_ADDRESS=per_address)
        running = envoy("envoy_ratelimit.yaml", SERVICE=port)(stage)
        return replace(running, processes=[*running.processes, service, redis.process], redis=redis)

    return start


def start_service(stage: Stage, port: int, redis: Redis, buffered: bool, **limits: int) -> Process:
    """Starts the service with one worker, as for all gateways. It reads all files of a folder, so it gets a separate
    one."""
    folder = stage.folder / f"ratelimit-{port}" / "config"
    folder.mkdir(parents=True)
    stage.config("ratelimit.yaml", **limits).rename(folder / "limits.yaml")
    env = ratelimit_environment(folder.parent, port, redis.port) | {
        "GOMAXPROCS": "1",
        "PORT": str(free_port()),
        "DEBUG_PORT": str(free_port()),
        "REDIS_TYPE": "CLUSTER" if buffered else "SINGLE",
        "REDIS_PIPELINE_WINDOW": WINDOW if buffered else "0",
    }
    return stage.start("ratelimit", [stage.tools.ratelimit], port, env=env)


def start_cluster(stage: Stage) -> Redis:
    """Starts a Redis Cluster with one node."""
    port = str(free_port())
    cluster = ["--cluster-enabled", "yes", "--cluster-port", port, "--cluster-config-file", f"nodes-{port}.conf"]
    redis = start_redis(stage, *cluster, "--cluster-announce-ip", "127.0.0.1")
    redis.run("cluster", "addslotsrange", *SLOTS)
    end = time.monotonic() + START_SECONDS
    while "cluster_state:ok" not in redis.run("cluster", "info"):
        if time.monotonic() > end:
            raise MeasurementError("redis does not become a cluster")
        time.sleep(0.05)
    return redis
