"""python -m tests.generated [--seed N] [--count N]: what is wrong with the answers on generated faults."""

import argparse
import collections
import sys

import torch

from tests.generated.program import check, draw


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.generated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    programs = draw(options.seed, options.count)
    wrong = 0
    for program in programs:
        differences = check(program)
        wrong += bool(differences)
        for difference in differences:
            print(f"{program}: {difference}")
    forms = collections.Counter(program.form for program in programs)
    print(f"seed {options.seed}: {len(programs)} faults, {wrong} answered wrong; {dict(forms)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
