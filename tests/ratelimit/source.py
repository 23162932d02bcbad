"""The source of envoyproxy/ratelimit, from Go's module proxy, and a copy in which Tidegate answers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import install

MODULE = "github.com/envoyproxy/ratelimit"
# The commit that docs/service.md is compared with. Proxies that do not have it may have the version of the benchmark.
COMMIT = "f2fb157"
VERSIONS = ("v1.4.1-0.20260706065234-f2fb15770f7f", install.RATELIMIT_VERSION)
HERE = Path(__file__).resolve().parent / "go"
TREE = install.ROOT / "target" / "ratelimit" / "tree"

# Functions that the copy renames, because a file of go/ has a function with the same name, which calls them.
RENAMED = {
    "src/config/config_impl.go": {
        r"^func NewRateLimitConfigImpl\(": "func newRateLimitConfigImpl(",
        r"^func ConfigFileContentToYaml\(": "func configFileContentToYaml(",
    },
    "src/service/ratelimit.go": {r"^func \(this \*service\) shouldRateLimitWorker\(": "func (this *service) answer("},
}
ADDED = {
    "peer.go": "src/tidegate",
    "config.go": "src/config",
    "service.go": "src/service",
    "modes.go": "src/service",
}
TESTS = "test/tidegate"


class Absent(Exception):
    """The source or a program is missing."""


@dataclass(frozen=True)
class Source:
    """A version of envoyproxy/ratelimit. `folder` is the copy."""

    version: str
    folder: Path

    @property
    def is_compared_commit(self) -> bool:
        return COMMIT in self.version

    def functions(self, pattern: str) -> list[str]:
        """Returns the names of the test functions in these files."""
        texts = [path.read_text() for path in sorted(self.folder.glob(pattern))]
        return [name for text in texts for name in re.findall(r"^func (Test\w+)\(", text, re.M)]

    def scripts(self) -> list[Path]:
        return sorted((self.folder / "integration-test" / "scripts").glob("*.sh"))


def prepare() -> Source:
    """Copies the source, renames functions, and adds the files of go/."""
    version, original = find()
    shutil.rmtree(TREE, ignore_errors=True)
    for name in ("src", "test", "examples/ratelimit", "examples/envoy", "integration-test", "go.mod", "go.sum"):
        source, target = original / name, TREE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            # The module cache is read-only.
            shutil.copytree(source, target, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(source, target)
    subprocess.run(["chmod", "-R", "u+w", TREE], check=True)
    for name, renamed in RENAMED.items():
        rename(TREE / name, renamed)
    for path in HERE.glob("*.go"):
        folder = TREE / ADDED.get(path.name, TESTS)
        folder.mkdir(exist_ok=True)
        # Distinct from the files of envoyproxy/ratelimit.
        shutil.copyfile(path, folder / f"tidegate_{path.name}")
    return Source(version, TREE)


def find() -> tuple[str, Path]:
    """Returns a version and its folder: RATELIMIT_SOURCE, or the first version that the proxy has."""
    if not shutil.which("go"):
        raise Absent("Go is not installed")
    if folder := os.environ.get("RATELIMIT_SOURCE"):
        return f"{COMMIT} in {folder}", Path(folder)
    for version in VERSIONS:
        command = ["go", "mod", "download", "-json", f"{MODULE}@{version}"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, stdin=subprocess.DEVNULL)
        if folder := json.loads(done.stdout or "{}").get("Dir"):
            return version, Path(folder)
    raise Absent(f"{MODULE} could not be downloaded")


def rename(path: Path, names: dict[str, str]) -> None:
    text = path.read_text()
    for pattern, name in names.items():
        text, count = re.subn(pattern, name, text, flags=re.M)
        if count != 1:
            raise ValueError(f"{path} has {count} times {pattern}")
    path.write_text(text)
