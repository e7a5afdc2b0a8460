"""Checks every #include against the tables in docs/architecture.md; prints FILE:LINE and what is wrong.

usage: python tools/check_layers.py [ROOT]
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".h", ".cpp", ".cc"}
FOR_TESTS = {"GoogleTest", "nlohmann-json", "SQLite"}


@dataclass
class Layer:
    folder: str
    paths: list[str] = field(default_factory=list)
    libraries: set[str] = field(default_factory=set)


@dataclass
class Rules:
    layers: dict[str, Layer]
    libraries: dict[str, list[str]]  # name -> prefixes of its headers

    def layer_of(self, path: str) -> Layer | None:
        parts = path.split("/")[:-1]
        while parts and (parts != ["firstfault"] or path.count("/") == 1):  # a stage needs a row of its own
            if layer := self.layers.get("/".join(parts)):
                return layer
            parts.pop()
        return None

    def library_of(self, header: str) -> str | None:
        for name, prefixes in self.libraries.items():
            if any(header.startswith(prefix) for prefix in prefixes):
                return name
        return None


def table(text: str, first_heading: str) -> list[list[str]]:
    """The cells of the Markdown tables whose head begins with these two columns."""
    rows, inside = [], False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith(first_heading):
            inside = True
        elif inside and not line.startswith("| ---"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def read_rules(document: str) -> Rules:
    layers = {}
    for folder, allowed, *_ in table(document, "| folder | may include"):
        name = folder.strip("`")
        words = allowed.split()
        layers[name] = Layer(
            name, [word.strip("`") for word in words if word[0] == "`"], {word for word in words if word[0] != "`"}
        )
    libraries = {name: re.findall("`([^`]+)`", headers) for name, headers in table(document, "| library | its headers")}
    if not layers or not libraries:
        raise SystemExit("docs/architecture.md: the table of folders or the table of libraries is missing")
    return Rules(layers, libraries)


def within(path: str, allowed: str) -> bool:
    return path == allowed or path.startswith(allowed + "/")


def wrong_with(rules: Rules, path: str, quote: str, header: str) -> str | None:
    """What is wrong with this #include in the file `path`, or None."""
    layer = rules.layer_of(path)
    if layer is None:
        return f"no row of docs/architecture.md covers {path}"
    for_core = path.startswith("python/src/core_")
    if header.startswith(("firstfault/", "python/src/", "cli/")):
        target = rules.layer_of(header)
        if target is None:
            return f"no row of docs/architecture.md covers {header}"
        own = target.folder == layer.folder
        if for_core and within(header, "firstfault/live"):
            return f"python/src/core_* must load without LibTorch, but includes {header}"
        # A folder stands for itself and for what lies beneath it, unless that has a row of its own and is not listed.
        listed = any(
            header == p or (within(header, p) and (layer.folder == "python/src" or target.folder == p))
            for p in layer.paths
        )
        return None if own or listed else f"{layer.folder} may not include {header}"
    library = rules.library_of(header)
    if library is None:
        if quote == '"':
            return f'"{header}" is not a path from the root of the repository'
        # What is left is the standard library (no slash, no suffix) and the system's headers (sys/mman.h, dlfcn.h).
        known = "/" not in header or header.startswith(("sys/", "linux/", "bits/"))
        return None if known else f"<{header}> belongs to no library that docs/architecture.md lists"
    if library == "fmt" and not path.endswith(".cpp"):
        return f"fmt is for .cpp files only, not for {path}"
    if for_core and library == "LibTorch":
        return f"python/src/core_* must load without LibTorch, but includes <{header}>"
    allowed = layer.libraries | (FOR_TESTS if path.endswith("_test.cc") else set())
    return None if library in allowed else f"{layer.folder} may not use {library} (<{header}>)"


def check(root: Path) -> list[str]:
    rules = read_rules((root / "docs/architecture.md").read_text(encoding="utf-8"))
    problems = [
        f"docs/architecture.md: folder {folder} does not exist"
        for folder in rules.layers
        if not (root / folder).is_dir()
    ]
    for top in ("firstfault", "python/src", "cli"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SOURCES:
                continue
            path = file.relative_to(root).as_posix()
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                if (found := INCLUDE.match(line)) and (problem := wrong_with(rules, path, *found.groups())):
                    problems.append(f"{path}:{number}: {problem}")
    return problems


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = check(root)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
