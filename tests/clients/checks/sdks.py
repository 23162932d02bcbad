"""The Python SDKs of OpenAI and Anthropic: they parse rejections, and retry after the given time."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator

import anthropic
import model_server
import openai
from checking import check, expect
from harness import Harness

# The interval of the limit of calls in models.yaml, in seconds.
INTERVAL = 1.5

Ask = Callable[..., Any]


@contextmanager
def models(harness: Harness) -> Iterator[tuple[model_server.Server, str]]:
    """Starts the upstream and a gateway. Returns the URL of the gateway."""
    server = model_server.Server()
    try:
        gateway = harness.start_gateway(harness.folder / "models.yaml", MODELS=server.port)
        yield server, f"http://{gateway.addresses[0]}"
    finally:
        server.stop()


def ask_openai(url: str, retries: int, model: str, **more: Any) -> Any:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=retries)
    messages: Any = [{"role": "user", "content": "hello"}]
    return client.chat.completions.with_raw_response.create(model=model, user="u", messages=messages, **more)


def ask_anthropic(url: str, retries: int, model: str, **more: Any) -> Any:
    client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=retries)
    messages: Any = [{"role": "user", "content": "hello"}]
    return client.messages.with_raw_response.create(model=model, messages=messages, **{"max_tokens": 50, **more})


def rejection(kind: type[Exception], ask: Callable[[], Any]) -> Any:
    try:
        ask()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def retries_in_time(harness: Harness, ask: Ask, error: type[Exception]) -> None:
    """Expects an error without retries, and otherwise a retry that the gateway admits."""
    with models(harness) as (server, url):
        ask(url, 0, "a")
        rejected = rejection(error, lambda: ask(url, 0, "a"))
        wait = int(rejected.response.headers["retry-after-ms"]) / 1_000
        expect("the wait is at most the interval", 0 < wait <= INTERVAL, True)
        expect("the seconds of the wait", rejected.response.headers["retry-after"], "2" if wait > 1 else "1")
        begin = time.monotonic()
        # The first attempt is rejected, and its only retry comes after the wait.
        ask(url, 1, "a")
        expect("the retry waits", time.monotonic() - begin >= wait - 0.5, True)
        expect("requests of the upstream", len(server.arrivals), 2)
        expect("the upstream is not asked too early", server.arrivals[1] - server.arrivals[0] >= INTERVAL - 0.1, True)


@check("the SDK of OpenAI raises RateLimitError, and retries after the given time")
def openai_retries(harness: Harness) -> None:
    retries_in_time(harness, ask_openai, openai.RateLimitError)


@check("the SDK of Anthropic raises RateLimitError, and retries after the given time")
def anthropic_retries(harness: Harness) -> None:
    retries_in_time(harness, ask_anthropic, anthropic.RateLimitError)


@check("the SDK of OpenAI parses the errors and the fields of the limits")
def openai_errors(harness: Harness) -> None:
    with models(harness) as (server, url):
        response = ask_openai(url, 0, "a")
        fields = response.headers
        expect("the limit of tokens", fields["x-ratelimit-limit-tokens"], "2000")
        expect("the remaining requests", fields["x-ratelimit-remaining-requests"], "0")
        expect("the text", response.parse().choices[0].message.content, "hello")
        error = rejection(openai.RateLimitError, lambda: ask_openai(url, 0, "a"))
        expect("the error", (error.code, error.type), ("rate_limit_exceeded", "requests"))
        # Too large for the whole limit: the SDK does not retry.
        begin = time.monotonic()
        error = rejection(openai.RateLimitError, lambda: ask_openai(url, 5, "b", max_completion_tokens=5_000))
        expect("the error", (error.code, error.type), ("rate_limit_exceeded", "tokens"))
        expect("no retry", time.monotonic() - begin < 1, True)
        expect("requests of the upstream", len(server.arrivals), 1)


@check("the SDK of Anthropic parses the errors and the fields of the limits")
def anthropic_errors(harness: Harness) -> None:
    with models(harness) as (server, url):
        fields = ask_anthropic(url, 0, "a").headers
        expect("the limit of tokens", fields["anthropic-ratelimit-tokens-limit"], "2000")
        expect("the reset", fields["anthropic-ratelimit-requests-reset"].endswith("Z"), True)
        error = rejection(anthropic.RateLimitError, lambda: ask_anthropic(url, 0, "a"))
        expect("the error", error.body["error"]["type"], "rate_limit_error")
        error = rejection(anthropic.RateLimitError, lambda: ask_anthropic(url, 5, "b", max_tokens=5_000))
        expect("requests of the upstream", len(server.arrivals), 1)
