"""The proxy of LiteLLM, from PyPI."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from install import TARGET, run
from process import Command, MeasurementError, free_port
from product import HERE, Product
from stage import Stage

PACKAGE = "litellm[proxy]"
VENV = TARGET.parent / "overspend" / "venv"
PROGRAM = VENV / "bin" / "litellm"

# It imports thousands of modules.
START_SECONDS = 90.0

# It must not ask servers for prices and versions.
ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "NO_PROXY": "127.0.0.1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


# Returns to the limiter of versions in which the issue was reported.
WITHOUT_RESERVATIONS = {**ENVIRONMENT, "LITELLM_TPM_TOKEN_RESERVATION_ENABLED": "false"}


def start(stage: Stage, upstream: int, budget: int, environment: dict[str, str] = ENVIRONMENT) -> list[int]:
    install()
    port = free_port()
    config = stage.config(str(HERE / "config" / "litellm.yaml"), UPSTREAM=upstream)
    shutil.copy(HERE / "config" / "litellm_keys.py", stage.folder)
    command: Command = [PROGRAM, "--config", config, "--host", "127.0.0.1", "--port", str(port)]
    stage.start("litellm", command, port, environment, START_SECONDS)
    return [port]


def install() -> None:
    """Installs the proxy into a virtual environment of its own."""
    if PROGRAM.exists():
        return
    run(["python3", "-m", "venv", str(VENV)])
    run([str(VENV / "bin" / "python3"), "-m", "pip", "install", "-q", "--disable-pip-version-check", PACKAGE])
    if not PROGRAM.exists():
        raise MeasurementError(f"pip could not install {PACKAGE}")


def version() -> str:
    folder = next(VENV.glob("lib/python*/site-packages/litellm-*.dist-info"), Path("litellm-.dist-info"))
    return folder.name.removeprefix("litellm-").removesuffix(".dist-info")


PRODUCTS = [
    Product(
        name="LiteLLM",
        how="measured: one instance of its proxy",
        law="`tpm_limit` of a key: tokens per minute. The key comes from `custom_auth`, since keys in its database need "
        "PostgreSQL. A request reserves its bound and an estimate of its input: a token for four characters. Requests "
        "without a bound get one.",
        start=start,
        version=version,
    ),
    Product(
        name="LiteLLM, without reservations",
        how="measured: one instance of its proxy",
        law="`LITELLM_TPM_TOKEN_RESERVATION_ENABLED=false`: the limiter of the issue. A request passes if the counter is below "
        "the limit, and its tokens are counted after the response.",
        start=partial(start, environment=WITHOUT_RESERVATIONS),
    ),
]
