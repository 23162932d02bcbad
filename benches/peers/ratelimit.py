"""Starts Envoy with a rate limit service that keeps its limits in Redis: envoyproxy/ratelimit, or Tidegate."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

from contestant import Running
from gateways import Start, envoy
from install import ratelimit_environment
from process import START_SECONDS, Command, MeasurementError, Process, free_port
from redis import Redis, start_redis
from stage import Stage

# The time for which the service buffers its writes to Redis to send them together: the minimum that its documentation
# recommends.
WINDOW = "150us"
SLOTS = ("0", "16383")


def envoy_with_ratelimit(overall: int, per_address: int, buffered: bool = False, instances: int = 1) -> Start:
    """Starts Envoy with instances of a service that writes the commands of each request immediately, or `buffered`. The
    service buffers only writes to a Redis Cluster, so `buffered` uses a cluster with one node."""

    def start(stage: Stage) -> Running:
        redis = start_cluster(stage) if buffered else start_redis(stage)
        ports = [free_port() for _ in range(instances)]
        limits = {"OVERALL": overall, "PER_ADDRESS": per_address}
        services = [start_service(stage, port, redis, buffered, **limits) for port in ports]
        return envoy_with(stage, ports, services, redis)

    return start


def envoy_with_tidegate(overall: int, per_address: int, instances: int = 1) -> Start:
    """Starts Envoy with instances of Tidegate, which have the same limits in the same file."""

    def start(stage: Stage) -> Running:
        redis = start_redis(stage)
        ports = [free_port() for _ in range(instances)]
        limits = stage.config("ratelimit.yaml", OVERALL=overall, PER_ADDRESS=per_address)
        services = [start_tidegate_service(stage, port, free_port(), redis, limits) for port in ports]
        return envoy_with(stage, ports, services, redis)

    return start


def envoy_with(stage: Stage, ports: list[int], services: list[Process], redis: Redis) -> Running:
    """Starts Envoy, which asks the services in turns."""
    addresses = [{"socket_address": {"address": "127.0.0.1", "port_value": port}} for port in ports]
    endpoints = json.dumps([{"endpoint": {"address": address}} for address in addresses])
    running = envoy("envoy_ratelimit.yaml", SERVICES=endpoints)(stage)
    return replace(running, processes=[*running.processes, *services, redis.process], redis=redis)


def start_tidegate_service(stage: Stage, grpc: int, http: int, redis: Redis, limits: Path) -> Process:
    """Starts Tidegate's rate limit service with one worker."""
    config = stage.config("tidegate_service.yaml", GRPC=grpc, HTTP=http, REDIS=redis.port, LIMITS=limits)
    command: Command = [stage.tools.tidegate, "run", "-c", config, "--workers", "1"]
    return stage.start("tidegate", command, grpc)


def start_service(
    stage: Stage, port: int, redis: Redis, buffered: bool, http: int | None = None, **limits: int
) -> Process:
    """Starts the service with one worker, as for all gateways. It reads all files of a folder, so it gets a separate
    one."""
    folder = stage.folder / f"ratelimit-{port}" / "config"
    folder.mkdir(parents=True)
    stage.config("ratelimit.yaml", **limits).rename(folder / "limits.yaml")
    env = ratelimit_environment(folder.parent, port, redis.port) | {
        "GOMAXPROCS": "1",
        "PORT": str(http or free_port()),
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
