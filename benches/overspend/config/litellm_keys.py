"""The keys of LiteLLM's proxy: the name of a key has its limit of tokens per minute, as in `sk-100`."""

from __future__ import annotations

from fastapi import Request
from litellm.proxy._types import UserAPIKeyAuth


async def user_api_key_auth(request: Request, api_key: str) -> UserAPIKeyAuth:
    return UserAPIKeyAuth(api_key=api_key, tpm_limit=int(api_key.removeprefix("sk-")))
