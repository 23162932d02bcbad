"""Clients that ask until they are told to stop: wrk over HTTP/1.1, node and grpcio over HTTP/2, all of them over TLS."""

from __future__ import annotations

import json
import re
import signal
import threading

import grpc
from checking import expect
from grpc_server import SERVICE
from stage import Stage


class Load:
    """wrk on kept connections, wrk on a new one for each request, node in both ways, and calls of grpcio on a channel."""

    def __init__(self, stage: Stage, address: str):
        url = f"https://{address}/plain"
        wrk = ("wrk", "-t", 1, "-d", 300, "--timeout", 10, "-s", stage.folder / "load.lua")
        self.wrk = [
            stage.start(*wrk, "-c", 4, url),
            stage.start(*wrk, "-c", 2, "-H", "Connection: close", url),
        ]
        self.calls = Calls(stage, address)
        self.node = stage.start("node", stage.folder / "load_http2.mjs", url, stage.certificates.ca, takes_input=True)

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        """It does not outlive a check that fails."""
        self.calls.stopped.set()
        for program in (*self.wrk, self.node):
            program.kill()

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
        calls = self.calls.end()
        requests, handshakes = sum(answered) + totals["answered"], answered[1] + totals["handshakes"]
        return f"{requests} requests, {calls} calls, {handshakes} handshakes"


class Calls:
    """Calls of gRPC, one after the other on each of two threads."""

    def __init__(self, stage: Stage, address: str):
        self.stopped, self.answered, self.failures = threading.Event(), 0, []
        credentials = grpc.ssl_channel_credentials(stage.certificates.ca.read_bytes())
        self.channel = grpc.secure_channel(address, credentials, [("grpc.use_local_subchannel_pool", 1)])
        self.threads = [threading.Thread(target=self.keep_calling, daemon=True) for _ in range(2)]
        for thread in self.threads:
            thread.start()

    def keep_calling(self) -> None:
        call = self.channel.unary_unary(f"/{SERVICE}/Unary")
        while not self.stopped.wait(0.002):
            try:
                call(b"hello", timeout=10)
                self.answered += 1
            except grpc.RpcError as error:
                self.failures.append(str(error))

    def end(self) -> int:
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        self.channel.close()
        expect("grpcio's failures", self.failures, [])
        return self.answered


def answered_by_wrk(told: str) -> int:
    """How many requests it had answered. It tells of failures only where there are some."""
    failures = re.findall(r"Socket errors: .*|Non-2xx or 3xx responses: .*", told)
    expect("wrk's failures", failures, [])
    answered = re.search(r"(\d+) requests in", told)
    return int(answered[1]) if answered else 0
