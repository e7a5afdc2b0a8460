"""What can be put into a run: a function each, which changes the site and says what is then true."""

from __future__ import annotations

from . import arithmetic, data, initialisation, loss, optimization, precision
from .fault import Fault

FAULTS: list[Fault] = [
    *data.FAULTS,
    *loss.FAULTS,
    *arithmetic.FAULTS,
    *precision.FAULTS,
    *optimization.FAULTS,
    *initialisation.FAULTS,
]
BY_NAME = {fault.name: fault for fault in FAULTS}
