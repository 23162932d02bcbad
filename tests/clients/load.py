"""Clients that ask until they are told to stop: wrk over HTTP/1.1, and node over HTTP/2, both over TLS."""

from __future__ import annotations

import json
import re
import signal

from checking import expect
from stage import Stage


class Load:
    """Three programs of clients: wrk on kept connections, wrk on a new one for each request, and node in both ways."""

    def __init__(self, stage: Stage, url: str):
        wrk = ("wrk", "-t", 1, "-d", 300, "--timeout", 10, "-s", stage.folder / "load.lua")
        self.wrk = [
            stage.start(*wrk, "-c", 4, url),
            stage.start(*wrk, "-c", 2, "-H", "Connection: close", url),
        ]
        self.node = stage.start("node", stage.folder / "load_http2.mjs", url, stage.certificates.ca, takes_input=True)

    def goes_on(self) -> None:
        """Waits until node has had 20 more answers."""
        assert self.node.stdin and self.node.stdout
        self.node.stdin.write("\n")
        self.node.stdin.flush()
        self.node.stdout.readline()

    def end(self) -> str:
        """Ends it; nothing may have failed. Returns how much was answered."""
        for program in self.wrk:
            program.send_signal(signal.SIGINT)
        answered = [answered_by_wrk(program.communicate(timeout=10)[0]) for program in self.wrk]
        told, _ = self.node.communicate(timeout=10)
        totals = json.loads(told)
        expect("node's failures", totals["failures"], [])
        return f"{sum(answered) + totals['answered']} requests, {answered[1] + totals['handshakes']} handshakes"


def answered_by_wrk(told: str) -> int:
    """How many requests it had answered. It tells of failures only where there are some."""
    failures = re.findall(r"Socket errors: .*|Non-2xx or 3xx responses: .*", told)
    expect("wrk's failures", failures, [])
    answered = re.search(r"(\d+) requests in", told)
    return int(answered[1]) if answered else 0
