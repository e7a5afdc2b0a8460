"""python -m tests.accuracy: see score.py."""

import sys

from .score import main

sys.exit(main())
