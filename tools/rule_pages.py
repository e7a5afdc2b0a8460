"""Writes docs/rules/ from the words beside each rule's code.

python -m tools.rule_pages [--check]: --check writes nothing and fails where a page is not what it would write.
"""

import sys

import firstfault as ff
from tools.pages import DOCS, pages, publish, wrapped

FOLDER = DOCS / "rules"

INTRODUCTION = """# Causes

<!-- Made by tools/rule_pages.py: change the text beside the code in firstfault/reason/rules/. -->

A rule says why a run failed. It reads what was recorded of the run: numbers per step, the health of parameters,
gradients and activations, facts about the program, the first faulty op and its [mechanism](../mechanisms/index.md). Its
name is the `cause` of a hypothesis; these names are the whole vocabulary. The thresholds below are the code's own.

First it is asked what went wrong first: a non-finite value, or growth of loss and gradients that did not come back. A
fault in a run whose last steps were ordinary is explained by the op that made it. Where loss, gradients or parameters
had grown before, the same op is only where the growth ended: an effect, listed as evidence, and the rules ask what
made it grow. A run in which nothing went wrong and which learns gets no hypothesis.

The rules are asked in this order, the specific before the general. Every rule answers with a confidence: of answers
with 0.9 or more, nine in ten are meant to be right. The surest answer comes first, the others share what it leaves
over.

To add one: a new file and its test in `firstfault/reason/rules/`, one line in `list.cpp`; then `python -m
tools.rule_pages`.

| cause | symptom |
| --- | --- |
"""


def page(rule):
    parts = [
        f"# {rule['name']}\n\n",
        wrapped("Symptom", rule["symptom"]),
        wrapped("Condition", rule["condition"]),
        wrapped("Evidence", rule["evidence"]),
        wrapped("Advice", rule["advice"]),
        wrapped("Source", rule["source"]),
        "\n[All causes](index.md)\n",
    ]
    return "".join(parts)


def main():
    return publish(FOLDER, pages(INTRODUCTION, ff._core.rules(), "symptom", page), "tools.rule_pages")


if __name__ == "__main__":
    sys.exit(main())
