"""Writes docs/mechanisms/ from the words beside each mechanism's code and the programs of tests/mechanisms.

python -m tools.mechanism_pages [--check]: --check writes nothing and fails where a page is not what it would write.
"""

import inspect
import sys

import firstfault as ff
from tests.mechanisms import programs
from tools.pages import DOCS, pages, publish, wrapped

FOLDER = DOCS / "mechanisms"

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


def main():
    return publish(FOLDER, pages(INTRODUCTION, ff._core.mechanisms(), "condition", page), "tools.mechanism_pages")


if __name__ == "__main__":
    sys.exit(main())
