"""Checks the rules of a rendered ConfigMap with the program, and starts the Redis of the chart."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from chart import Fault, Manifests, container

# Folders of secrets in the rules. Each of them gets all files of KEYS.
SECRETS = ("/run/secrets/tidegate", "/run/redis")
KEYS = {"tokens": "alice:0123456789abcdef\n", "redis-password": "secret\n", "token": "secret\n"}
START_SECONDS = 10.0


def check(manifests: Manifests, program: Path, folder: Path) -> None:
    """Runs `tidegate check` with the files and the variables of the pod."""
    deployment, config = manifests.only("Deployment"), manifests.only("ConfigMap")
    is_service = container(deployment)["command"] == ["/bin/ratelimit"]
    files = folder / "ratelimit" / "config" if is_service else folder / "etc"
    secrets = folder / "secrets"
    for path in (files, secrets):
        path.mkdir(parents=True)
    for name, text in KEYS.items():
        (secrets / name).write_text(text)
    for name, text in config["data"].items():
        for path in SECRETS:
            text = text.replace(path, str(secrets))
        (files / name).write_text(text)
    environment = os.environ | variables(deployment)
    rules = files / "tidegate.yaml"
    if is_service:
        environment |= {"RUNTIME_ROOT": str(folder), "TIDEGATE_REDIS_LOGIN": ":secret"}
        rules = folder / "rules.yaml"
        rules.write_text(run([program, "ratelimit", "--print"], environment))
    run([program, "check", rules], environment)


def variables(deployment: dict) -> dict[str, str]:
    """Returns the variables of the container. Those from a Secret have the value `secret`."""
    return {one["name"]: one.get("value", "secret") for one in container(deployment).get("env", [])}


def run(command: list[str | Path], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL, timeout=20
    )
    if done.returncode:
        raise Fault(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def start_redis(manifests: Manifests, folder: Path) -> None:
    """Runs the script of the container, in another folder and on a Unix socket, and requires the password."""
    if not shutil.which("redis-server"):
        return
    script = container(manifests.only("StatefulSet"))["args"][0]
    sock = folder / "redis.sock"
    (folder / "redis-password").write_text("secret")
    script = script.replace("dir /data", f"dir {folder}\nport 0\nunixsocket {sock}")
    script = script.replace("/run/secrets/redis", str(folder))
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as server:
        try:
            answers = talk(sock, server)
        finally:
            server.terminate()
    if answers != ["-NOAUTH Authentication required.", "+OK", "+PONG"]:
        raise Fault(f"the Redis of the chart: {answers}")


def talk(path: Path, server: subprocess.Popen[bytes]) -> list[str]:
    end = time.monotonic() + START_SECONDS
    while not path.exists() and server.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(START_SECONDS)
        client.connect(str(path))
        lines = client.makefile("rw", newline="")
        answers = []
        for command in ("PING", "AUTH secret", "PING"):
            lines.write(f"{command}\r\n")
            lines.flush()
            answers.append(lines.readline().strip())
    return answers
