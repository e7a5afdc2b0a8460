"""Writes docs/mechanisms/ from the words beside each mechanism's code and the programs of tests/mechanisms.

python -m tools.mechanism_pages [--check]: --check writes nothing and fails where a page is not what it would write.
"""

import inspect
import pathlib
import sys
import textwrap

import firstfault as ff
from tests.mechanisms import programs

FOLDER = pathlib.Path(__file__).parent.parent / "docs" / "mechanisms"

INTRODUCTION = """# Mechanisms

<!-- Made by tools/mechanism_pages.py: change the text beside the code in firstfault/reason/mechanisms/. -->

A mechanism says why an op gave NaN or Inf from the operands it had. It reads only what was recorded about that op (its
output, its operands, the value at the first bad element, ranges and counts), and says nothing that these do not carry:
where a piece is missing, the sentence is worded accordingly or the mechanism stays silent. Where none fits, `mechanism`
is empty and the explanation is limited to what is known.

They are asked in this order, the specific before the general; the first that fits is the answer. In the backward the
operands are those of the op inside the node that first showed the value. In-place (`log_`) and foreach
(`_foreach_log`) forms count as the op itself. Of complex operands only the magnitude is read.

To add one: a new file and its test in `firstfault/reason/mechanisms/`, one line in `list.cpp`, a program that fires it
and one that does not in `tests/mechanisms/programs.py`; then `python -m tools.mechanism_pages`.

| mechanism | condition |
| --- | --- |
"""


def wrapped(label, text):
    return textwrap.fill(f"- {label}: {text}", 118, subsequent_indent="  ", break_long_words=False) + "\n"


def page(mechanism):
    program = getattr(programs, mechanism["name"])
    parts = [
        f"# {mechanism['name']}\n\n",
        wrapped("Condition", mechanism["condition"]),
        wrapped("Cause", mechanism["cause"] or "none of its own"),
        wrapped("What is read", mechanism["reading"]),
        wrapped("Remedy", mechanism["remedy"]),
        f"\nA program that fires it:\n\n```python\n{inspect.getsource(program)}```\n",
        "\n[All mechanisms](index.md)\n",
    ]
    return "".join(parts)


def pages():
    known = ff._core.mechanisms()
    rows = "".join(f"| [{one['name']}]({one['name']}.md) | {one['condition']} |\n" for one in known)
    return {"index.md": INTRODUCTION + rows, **{f"{one['name']}.md": page(one) for one in known}}


def main():
    wanted = pages()
    there = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
    if "--check" in sys.argv[1:]:
        different = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
        for name in different:
            print(f"docs/mechanisms/{name} is not what the source says; run python -m tools.mechanism_pages")
        return 1 if different else 0
    FOLDER.mkdir(exist_ok=True)
    for name in there.keys() - wanted.keys():
        (FOLDER / name).unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
