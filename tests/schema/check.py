"""Validates rule files against config/tidegate.schema.json.

Rule files without errors must be valid. A fixture with a structural error must be invalid: its snapshot has the messages of
`tidegate check`.
"""
import json
import pathlib
import re
import sys

from jsonschema import Draft7Validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures"

# Messages about keys, types, words and the ranges of numbers.
STRUCTURAL = re.compile(
    r"unknown key|is not supported yet|has no value|must be (a |one |text|`true`)|must not be an empty| needs `(name|match|targets|url"
    r"|file|cert|key|ca|address|master|nodes|header|rate|interval)`| has no unit|must have a unit"
)
# Messages that look structural, but are about something that a schema cannot express.
OTHER = re.compile(
    r"must be a map, not nothing|`(mode|interval|rate)` *$|a limit needs|`cert` needs|`key` needs|an included file"
    r"|a gateway needs|unknown key .* in an included file|must be a text that is not empty"
)


# Files with aliases that other parsers expand, with placeholders, and with a client source, which is text for a schema.
NOT_CHECKED = ("yaml_bomb", "alias_in_itself", "values", "values_from_files", "unsupported_values")


def load(path):
    """Parses YAML 1.2. Returns None for files that are not YAML, are empty, or have duplicate keys."""
    try:
        return json.loads(json.dumps(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")), default=str))
    except (YAMLError, ValueError, TypeError, RecursionError):
        return None


def messages(fixture):
    text = (ROOT / f"tests/it/snapshots/{fixture.stem}.snap").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith(f"tests/fixtures/config/{fixture.name}:")]
    return [line for line in lines if "warning:" not in line]


def main():
    schema = json.loads((ROOT / "config/tidegate.schema.json").read_text(encoding="utf-8"))
    Draft7Validator.check_schema(schema)
    validator = Draft7Validator(schema)
    faults, valid, invalid = [], 0, 0
    rule_files = [path for folder in ("config", "examples") for path in sorted((ROOT / folder).rglob("*.yaml"))]
    rule_files = [path for path in rule_files if "tidegate.schema.json" in path.read_text(encoding="utf-8").splitlines()[0]]
    for path in rule_files + sorted((FIXTURES / "every_key").glob("*.yaml")):
        errors = [error.message for error in validator.iter_errors(load(path))]
        valid += 1
        if errors:
            faults.append(f"{path.relative_to(ROOT)} is valid, but not for the schema: {errors[0]}")
    for path in sorted((FIXTURES / "config").glob("*.yaml")):
        if path.stem in NOT_CHECKED:
            continue
        document = load(path)
        if document is None:
            continue
        structural = [line for line in messages(path) if STRUCTURAL.search(line) and not OTHER.search(line)]
        error = next((error.message for error in validator.iter_errors(document)), None)
        invalid += bool(structural)
        if structural and error is None:
            faults.append(f"the schema accepts {path.name}: {structural[0]}")
        if error is not None and not [line for line in messages(path) if re.search(STRUCTURAL.pattern + "|must be|needs", line)]:
            faults.append(f"the schema rejects {path.name}: {error}")
    print(f"{valid} valid rule files, {invalid} fixtures with structural errors")
    if valid < 10 or invalid < 30:
        faults.append("too few files were checked")
    print("\n".join(faults))
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
