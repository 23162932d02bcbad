"""An MCP server with the tools `search` and `add`, over streamable HTTP."""

from __future__ import annotations

import socket
import threading
import time

import uvicorn
from mcp.server import MCPServer


class Server:
    """The server. `searches` is the number of calls of `search`."""

    def __init__(self) -> None:
        self.searches = 0
        tools = MCPServer("tools", log_level="ERROR")
        tools.tool()(self.search)
        tools.tool()(self.add)
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(tools.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)
        self._thread.start()
        end = time.monotonic() + 10
        while not self._server.started and time.monotonic() < end:
            time.sleep(0.01)

    def search(self, query: str) -> str:
        self.searches += 1
        return f"found {query}"

    def add(self, first: int, second: int) -> int:
        return first + second

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(5)
