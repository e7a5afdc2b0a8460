"""`firstfault export RUN --format parquet`, by pyarrow."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

from firstfault import _core


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="firstfault export", description="With --format parquet, by pyarrow.")
    parser.add_argument("run", metavar="RUN", help="run file")
    parser.add_argument("--format", choices=["parquet"])
    parser.add_argument("--what", choices=["steps", "sites", "events"], default="steps")
    parser.add_argument("-o", "--out", metavar="FILE", required=True, help="file to write")
    return parser.parse_args(arguments)


def table_of(csv_file: str, what: str):
    import pyarrow
    from pyarrow import csv

    known = {"integer": pyarrow.int64(), "number": pyarrow.float64(), "bool": pyarrow.bool_(), "text": pyarrow.string()}
    # "nan" and "inf" are numbers; what was not measured is empty.
    options = csv.ConvertOptions(
        column_types={name: known[kind] for name, kind in _core.columns(what)},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return csv.read_csv(csv_file, parse_options=csv.ParseOptions(newlines_in_values=True), convert_options=options)


def export(arguments: list[str]) -> int:
    wishes = parsed(arguments)
    try:
        from pyarrow import parquet
    except ImportError:
        print("firstfault: --format parquet needs the package pyarrow: pip install pyarrow", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        csv_file = os.path.join(folder, "run.csv")
        # In a process of its own, whose words and exit code are the program's.
        written = subprocess.run(
            [sys.executable, "-m", "firstfault", "export", wishes.run, "--what", wishes.what, "--out", csv_file]
        )
        if written.returncode == 0:
            try:
                parquet.write_table(table_of(csv_file, wishes.what), wishes.out)
            except OSError as error:
                print(f"firstfault: cannot write {wishes.out}: {error}", file=sys.stderr)
                return 2
        return written.returncode
