"""The Python SDK of the Model Context Protocol: a limited call is an error of JSON-RPC, and its session goes on."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import Any, Iterator

import mcp_server
from checking import check, expect
from harness import Harness
from mcp import Client, MCPError

# The limit of mcp.yaml.
RATE, INTERVAL = 2, 3_600

LIMITED = -32029


@contextmanager
def tools(harness: Harness) -> Iterator[tuple[mcp_server.Server, str]]:
    """Starts the server and a gateway. Returns the URL of the gateway."""
    server = mcp_server.Server()
    try:
        gateway = harness.start_gateway(harness.folder / "mcp.yaml", TOOLS=server.port)
        yield server, f"http://{gateway.addresses[0]}/mcp"
    finally:
        server.stop()


async def call_tools(url: str, mode: str) -> tuple[list[str], MCPError | None, Any]:
    """Searches until an error, and then adds numbers. Returns what the searches have found, the error, and the sum."""
    found: list[str] = []
    error = None
    async with Client(url, mode=mode) as client:
        try:
            while len(found) <= RATE:
                result = await client.call_tool("search", {"query": str(len(found))})
                found.append(result.structured_content["result"])
        except MCPError as limited:
            error = limited
        names = {tool.name for tool in (await client.list_tools()).tools}
        expect("the tools", names, {"search", "add"})
        added = await client.call_tool("add", {"first": 1, "second": 2})
    return found, error, added.structured_content["result"]


def is_limited_call_an_error(harness: Harness, mode: str) -> None:
    with tools(harness) as (server, url):
        found, error, added = asyncio.run(call_tools(url, mode))
        expect("the results within the limit", found, ["found 0", "found 1"])
        expect("the code", error and error.code, LIMITED)
        wait = error.data["retry_after"] if error else 0
        expect("the wait is at most the interval", 0 < wait <= INTERVAL, True)
        expect("another tool of the same session", added, 3)
        expect("searches of the server", server.searches, RATE)


@check("the SDK of MCP gets a limited call as an error of JSON-RPC with `retry_after`")
def session(harness: Harness) -> None:
    is_limited_call_an_error(harness, "legacy")


@check("so does a client of MCP without a session")
def without_session(harness: Harness) -> None:
    is_limited_call_an_error(harness, "auto")
