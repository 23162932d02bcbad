"""Describes the machine and the versions of the programs, and measures the CPU time of other programs."""

from __future__ import annotations

import datetime
import os
import platform
import resource
import subprocess
from dataclasses import dataclass
from pathlib import Path

from install import RATELIMIT_VERSION, Tools
from network import congestion_control
from process import TICK


@dataclass(frozen=True)
class Machine:
    processor: str
    cores: int
    system: str
    date: str
    versions: dict[str, str]


@dataclass(frozen=True)
class CpuTimes:
    """CPU times so far, in seconds: of all processes, of this program with its children, and the time that the host of
    a virtual machine withheld."""

    total: float
    own: float
    stolen: float

    @classmethod
    def now(cls) -> CpuTimes:
        """Reads the current times. Children count after they have exited."""
        words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        user, nice, system, _idle, _iowait, irq, softirq, stolen = (int(word) / TICK for word in words[:8])
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
        return cls(user + nice + system + irq + softirq, own, stolen)

    def others_since(self, before: CpuTimes) -> float:
        """Returns the CPU time of other programs since `before`."""
        return max(0.0, (self.total - before.total) - (self.own - before.own))


def describe(tools: Tools) -> Machine:
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    release = ".".join(platform.release().split(".")[:2])
    system = f"{platform.system()} {release} with {congestion_control()}"
    versions = {
        "tidegate": version([tools.tidegate, "--version"]).removeprefix("tidegate "),
        "nginx": version([tools.nginx, "-v"]).rpartition("/")[2],
        "haproxy": word(version([tools.haproxy, "-v"]), 2),
        "Envoy": version([tools.envoy, "--version"]).rpartition("version: ")[2].partition("/")[2].partition("/")[0],
        "envoyproxy/ratelimit": RATELIMIT_VERSION if tools.ratelimit.exists() else "",
        "Caddy": word(version([tools.caddy, "version"]), 0).removeprefix("v"),
        "Redis": word(version([tools.redis, "--version"]), 2).removeprefix("v="),
        "libnginx-mod-http-lua": version(["dpkg-query", "-W", "-f", "${Version}", "libnginx-mod-http-lua"]),
        "wrk": word(version([tools.wrk, "-v"]), 1).removeprefix("debian/"),
        "OpenSSL": word(version([tools.openssl, "version"]), 1),
        "nghttp2": word(version([tools.h2load, "--version"]), 1).removeprefix("nghttp2/"),
    }
    date = datetime.date.today().isoformat()
    return Machine(model, os.cpu_count() or 1, system, date, {name: text for name, text in versions.items() if text})


def version(command: list[str | Path]) -> str:
    """Returns the first line of a program's output, or an empty string if the program is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else ""


def word(text: str, index: int) -> str:
    words = text.split()
    return words[index] if index < len(words) else ""
