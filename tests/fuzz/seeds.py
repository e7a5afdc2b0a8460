"""Writes the inputs that scan_fuzz begins with: every dtype in each kind of layout.

usage: python tests/fuzz/seeds.py FOLDER
"""

import itertools
import sys
from pathlib import Path

DTYPES, RAW, SPECIAL = 12, 1, 0
PACKED, EXPANDED, GAPS, OVERLAPPING, LONG = 0, 5, 6, 7 + 8 * 2, 254
# name: codes of the sizes, innermost first, codes of the strides, order of the dims, elements before the first
LAYOUTS = {
    "scalar": ([], [], 0, 0),
    "contiguous": ([5, 4, 3], [PACKED] * 3, 0, 0),
    "long": ([LONG, 2], [PACKED] * 2, 0, 1),
    "permuted": ([5, 4, 3], [PACKED] * 3, 5, 0),
    "slice": ([4, 3, 3, 2], [GAPS, PACKED, GAPS, PACKED], 0, 3),
    "column": ([LONG], [GAPS], 0, 0),
    "expanded": ([3, 4, 5], [PACKED, EXPANDED, PACKED], 2, 0),
    "overlapping": ([6, 7], [PACKED, OVERLAPPING], 1, 0),
    "empty": ([3, 0, 2], [PACKED] * 3, 0, 0),
    "five_dims": ([2, 3, 2, 3, 2], [PACKED] * 5, 77, 2),
}


def seed(dtype, layout, lazy, fill, payload):
    sizes, strides, order, offset = layout
    pad = [0] * (5 - len(sizes))
    return bytes([dtype, lazy, offset, len(sizes), *sizes, *pad, *strides, *pad, order, fill, *payload])


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    finite_but_three = [0x3C, 0, 0, 0, 7, 0, 1, 11, 0, 2]
    payloads = {"raw": (RAW, range(256)), "finite": (SPECIAL, [0x3C]), "special": (SPECIAL, finite_but_three)}
    for dtype, name, fill in itertools.product(range(DTYPES), LAYOUTS, payloads):
        lazy = (dtype + len(name)) % 4  # none, negated, conjugated, both
        (folder / f"{dtype}_{name}_{fill}").write_bytes(seed(dtype, LAYOUTS[name], lazy, *payloads[fill]))


if __name__ == "__main__":
    main()
