"""Paths that match a regular expression."""

from __future__ import annotations

import re._parser as parser


def of_regex(pattern: str) -> set[str]:
    """Returns up to three paths that match the expression, and one that may not."""
    try:
        parsed = parser.parse(pattern.replace("(?<", "(?P<"))
    except Exception:  # noqa: BLE001: an expression of another dialect has no samples
        return set()
    found = {text_of(parsed, choice) for choice in range(3)}
    paths = {text if text.startswith("/") else "/" + text for text in found}
    return {path for path in paths if path.isascii() and path.isprintable() and " " not in path} | {"/near" + min(paths)}


def text_of(parsed: object, choice: int) -> str:
    """Returns a text that matches, with this choice in each alternative."""
    text = ""
    for kind, value in parsed:  # type: ignore[attr-defined]
        name = str(kind)
        if name == "LITERAL":
            text += chr(value)
        elif name == "NOT_LITERAL":
            text += "x"
        elif name == "ANY":
            text += "x"
        elif name == "IN":
            text += of_set(value, choice)
        elif name == "BRANCH":
            branches = value[1]
            text += text_of(branches[choice % len(branches)], choice)
        elif name == "SUBPATTERN":
            text += text_of(value[-1], choice)
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, inner = value
            count = min(int(high), max(int(low), choice))
            text += text_of(inner, choice) * count
    return text


def of_set(items: list, choice: int) -> str:
    if str(items[0][0]) == "NEGATE":
        return "x"
    kind, value = items[choice % len(items)]
    if str(kind) == "LITERAL":
        return chr(value)
    if str(kind) == "RANGE":
        return chr(value[0])
    return {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": "", "CATEGORY_WORD": "w"}.get(str(value), "x")
