"""A WebSocket echo server behind the gateway, by `websockets`."""

from __future__ import annotations

import logging
import threading
from typing import Sequence

from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol


class Server:
    def __init__(self) -> None:
        # Closed connections are no errors: the checks decide that.
        logging.getLogger("websockets.server").setLevel(logging.CRITICAL)
        self.server = serve(echo, "127.0.0.1", 0, select_subprotocol=chat, max_size=None)
        self.port = self.server.socket.getsockname()[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()


def chat(_: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Selects the subprotocol `chat` if it is offered."""
    return Subprotocol("chat") if "chat" in offered else None


def echo(connection: ServerConnection) -> None:
    for message in connection:
        if message == "close":
            return connection.close(4000, "as you like")
        connection.send(message)
