"""The clients of examples/service, in several languages: they take a permit, and give it back if their command fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from typing import Callable

from checking import Absent, check, expect
from gateway import Gateway
from harness import ROOT, Harness

TOKEN = "0123456789abcdef0123456789abcdef"
CLIENTS = {"Python": ("python3", "take.py"), "Node.js": ("node", "take.mjs"), "Go": ("go", "run", "take.go"), "Java": ("java", "Take.java")}
gateways: list[Gateway] = []


def service(harness: Harness) -> str:
    """Returns the URL of a rate limit service, which is started once."""
    if not gateways:
        harness.write("tokens", f"clients:{TOKEN}\n")
        gateways.append(harness.start_gateway(harness.folder / "takes.yaml", FOLDER=harness.scratch))
    return gateways[0].service.replace("0.0.0.0", "127.0.0.1")


def run(harness: Harness, language: str, limit: str, *command: str) -> int:
    """Runs a client with a command. Returns the exit code."""
    interpreter, *parameters, script = CLIENTS[language]
    if not shutil.which(interpreter):
        raise Absent(f"{interpreter} is missing")
    words = [interpreter, *parameters, script, service(harness), limit, language, *command]
    environment = os.environ | {"TIDEGATE_TOKEN": TOKEN}
    done = subprocess.run(words, cwd=ROOT / "examples/service", env=environment, timeout=60, check=False)
    return done.returncode


def remaining(harness: Harness, language: str) -> int:
    """Returns the permits that remain, by a request for more than remain."""
    body = {"limits": [{"limit": "jobs/per-user", "client": language, "permits": 2}]}
    fields = {"Authorization": f"Bearer {TOKEN}"}
    request = urllib.request.Request(f"{service(harness)}/v1/take", json.dumps(body).encode(), fields)
    try:
        urllib.request.urlopen(request, timeout=10)
        return 2
    except urllib.error.HTTPError as refused:
        return json.load(refused)["limits"][0]["remaining"]


def check_client(language: str) -> Callable[[Harness], None]:
    def run_client(harness: Harness) -> None:
        expect("the exit code of a command that works", run(harness, language, "jobs/per-user", "true"), 0)
        expect("a command that fails", run(harness, language, "jobs/per-user", "false") != 0, True)
        expect("the permits that remain", remaining(harness, language), 1)
        expect("an unknown limit", run(harness, language, "jobs/none", "true") != 0, True)
        # The second command waits: first in the gateway, then in the client.
        for _ in range(2):
            expect("a command that waits", run(harness, language, "jobs/short", "true"), 0)

    return run_client


for name in CLIENTS:
    check(f"the client of examples/service in {name} takes a permit, waits, and gives it back", 90)(check_client(name))
