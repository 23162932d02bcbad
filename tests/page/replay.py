"""Checks of the page that `tidegate replay --html` writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from scene import Scene

RULES = """
upstreams: { app: { targets: ["builtin:echo"] } }
routes:
  - name: login
    match: { path: /login }
    upstream: app
    limits:
      - { name: per-ip, mode: PER_CLIENT, client: ip, rate: 10, interval: 1m }
      - { name: all, mode: OVERALL, rate: 120, interval: 10s, shadow: true }
  - name: api
    match: { path: /** }
    upstream: app
    limits:
      - { name: per-key, mode: PER_CLIENT, client: "header:x-api-key", rate: 10, interval: 1s }
      - { name: per-ip, mode: PER_CLIENT, client: ip, algorithm: token_bucket, rate: 20000, interval: 1h }
"""

STRICT = RULES.replace("rate: 10, interval: 1m", "rate: 5, interval: 1m")


def line(second: int, client: str, path: str) -> str:
    time = f"24/Nov/2026:12:{second // 60 % 60:02}:{second % 60:02} +0000"
    return f'{client} - - [{time}] "GET {path} HTTP/1.1" 200 512 "-" "curl/8.5.0"\n'


def log() -> str:
    """Returns the log of an hour: 600 clients with few requests and two with many, and a line that is not parsed."""
    lines = []
    for second in range(3600):
        number = (second * 7919) % 600
        busy = number // (number % 37 + 1)
        for client in (number, busy):
            lines.append(line(second, f"10.1.{client // 250}.{client % 250 + 1}", "/login" if second % 3 else "/v1/orders"))
        if 900 < second < 1500:
            lines += [line(second, "203.0.113.99", "/login")] * 5
        if 2000 < second < 2300:
            lines += [line(second, "2001:db8:85a3:8d3:1319:8a2e:370:7348", "/login")] * (second % 20)
    return "".join(lines) + "<script>document.title = 'injected'</script><img src=x>\n"


def write(scene: Scene) -> Path:
    """Writes the page of a replay. Returns its file."""
    files = {"strict.yaml": STRICT, "replay.yaml": RULES, "access.log": log()}
    for name, text in files.items():
        (scene.folder / name).write_text(text)
    command = [str(scene.program), "replay", "-c", "replay.yaml", "--against", "strict.yaml", "access.log"]
    subprocess.run([*command, "--html", "replay.html"], cwd=scene.folder, check=True, stdout=subprocess.DEVNULL)
    return scene.folder / "replay.html"
