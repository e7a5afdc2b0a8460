"""Writes a folder of pages under docs/ that are made from words beside the code."""

import pathlib
import sys
import textwrap

DOCS = pathlib.Path(__file__).parent.parent / "docs"


def wrapped(label, text):
    return textwrap.fill(f"- {label}: {text}", 118, subsequent_indent="  ", break_long_words=False) + "\n"


def pages(introduction, known, told, page):
    """An index of all and a page of each, by file name; `told`: the key of the sentence beside a name in the index."""
    rows = "".join(f"| [{one['name']}]({one['name']}.md) | {one[told]} |\n" for one in known)
    return {"index.md": introduction + rows, **{f"{one['name']}.md": page(one) for one in known}}


def publish(folder, wanted, tool):
    """Makes the folder hold the pages that are wanted, by file name; with --check, says which it does not hold."""
    there = {path.name: path.read_text() for path in folder.glob("*.md")}
    if "--check" in sys.argv[1:]:
        different = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
        for name in different:
            print(f"docs/{folder.name}/{name} is not what the source says; run python -m {tool}")
        return 1 if different else 0
    folder.mkdir(exist_ok=True)
    for name in there.keys() - wanted.keys():
        (folder / name).unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text)
    return 0
