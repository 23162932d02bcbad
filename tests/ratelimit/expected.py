"""The differences that are intended: cases.txt, whose reasons are quotations from docs/service.md."""

from __future__ import annotations

from pathlib import Path

from install import ROOT

LIST = Path(__file__).resolve().parent / "cases.txt"
PAGE = ROOT / "docs" / "service.md"
# The word for cases without calls, and for those that need another program.
NOT_RUN = "not-run"
# Cases of test/service that Go runs without Tidegate, and go/service_test.go with it.
TRANSLATED = {"service/TestServiceHealthStatus"}


def entries() -> dict[tuple[str, str], str]:
    """Returns the reason for each case and word."""
    result = {}
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            name, word, reason = line.removeprefix(OLDER).split(maxsplit=2)
            result[name, word] = reason
            if line.startswith(OLDER):
                OF_OLDER.add((name, word))
    return result


# The prefix of differences that only older versions of envoyproxy/ratelimit have, and these differences.
OLDER = "older "
OF_OLDER: set[tuple[str, str]] = set()
ENTRIES = entries()


def reason(name: str, word: str) -> str | None:
    return ENTRIES.get((name, word))


def compare_only_current() -> None:
    """Drops the differences that only older versions have."""
    for key in OF_OLDER:
        del ENTRIES[key]
    OF_OLDER.clear()


def unused(used: set[tuple[str, str]], is_script: bool) -> list[tuple[str, str]]:
    return sorted(key for key in set(ENTRIES) - used if key[0].startswith("scripts/") == is_script)


def faults(used: set[tuple[str, str]]) -> list[str]:
    """Returns the used reasons that docs/service.md does not have, and the tests that do not exist."""
    page = " ".join(PAGE.read_text().split())
    quoted = {key: text for key, text in ENTRIES.items() if key in used - OF_OLDER and key[1] != NOT_RUN}
    missing = [f"{name} {word}: docs/service.md has no {text!r}" for (name, word), text in quoted.items() if text not in page]
    others = [text for (_, word), text in ENTRIES.items() if word == NOT_RUN and text.startswith("tests/")]
    return missing + [f"there is no {path}" for path in others if not (ROOT / path).exists()]
