"""The rows with budgets of tokens: streams of a language model, and requests that have no budget."""

from __future__ import annotations

import json

from contestant import Contestant
from gateways import tidegate
from process import free_port
from row import AtMost, Row
from rows import PLAIN, TIDEGATE
from stage import Stage

EVENTS = 1_000
# Few, so that a slice of a second has many complete streams.
CONNECTIONS = 8
CONFIG = "tidegate_budget.yaml"
LUA = ("libnginx-mod-http-lua",)
JSON = (("Content-Type", "application/json"),)

# The client does not ask for the usage, so the gateway adds the option and removes the event.
ASK = json.dumps(
    {"model": "m", "max_tokens": 2 * EVENTS, "stream": True, "messages": [{"role": "user", "content": "Tell a story."}]},
    separators=(",", ":"),
)


def model_upstream(stage: Stage) -> int:
    """Starts an nginx that sends each event on its own."""
    port = free_port()
    chunk = {"id": "chatcmpl-0123456789", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": None}
    word = {**chunk, "choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": None}]}
    usage = {"prompt_tokens": 12, "completion_tokens": EVENTS, "total_tokens": EVENTS + 12}
    events = {"EVENT": word, "USAGE": {**chunk, "choices": [], "usage": usage}}
    texts = {name: json.dumps(event, separators=(",", ":")) for name, event in events.items()}
    config = stage.config("model.conf", PORT=port, EVENTS=EVENTS, **texts)
    stage.start("model", stage.nginx(config), port)
    return port


STREAMS = Row(
    name="streams",
    title="Streams of a language model, with a budget",
    about=f"The upstream sends {EVENTS:,} server-sent events, each in a chunk of its own, and then the usage. The gateway reads the "
    "request and the usage, removes the event with the usage, and charges a budget in its memory. The other route of the same "
    "gateway forwards the same stream without a budget. "
    f"The load has {CONNECTIONS} connections.",
    contestants=[
        Contestant(
            "tidegate, a budget",
            (*TIDEGATE, *LUA),
            CONFIG,
            tidegate(CONFIG),
            target="/v1/chat/completions",
            fields=JSON,
            post=ASK,
            connections=CONNECTIONS,
        ),
        Contestant(
            "tidegate, no budget",
            (*TIDEGATE, *LUA),
            CONFIG,
            tidegate(CONFIG),
            target="/free/chat/completions",
            fields=JSON,
            post=ASK,
            connections=CONNECTIONS,
        ),
    ],
    goals=[AtMost("tidegate, a budget", "tidegate, no budget", 1.30, each="stream")],
    upstream=model_upstream,
    each="stream",
)

OTHERS = Row(
    name="others",
    title="A route without budgets, in a file with budgets",
    about="As in the first row: the gateway only forwards. Another route of its file has a budget.",
    contestants=[
        Contestant("tidegate, a file with budgets", TIDEGATE, CONFIG, tidegate(CONFIG)),
        PLAIN.contestants[0],
    ],
    goals=[AtMost("tidegate, a file with budgets", "tidegate", 1.05)],
)

ROWS = [STREAMS, OTHERS]
