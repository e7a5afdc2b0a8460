"""Prints the first fenced block of a language in README.md, so that what README shows is what is tested.

usage: python readme_block.py LANGUAGE
"""

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def main() -> None:
    language = sys.argv[1]
    found = re.search(rf"^```{language}\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if not found:
        sys.exit(f"README.md has no ```{language} block")
    sys.stdout.write(found[1])


if __name__ == "__main__":
    main()
