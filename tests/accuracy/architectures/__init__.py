"""The families of models that are trained, healthy and with a fault."""

from . import attention, convolution, dense, generative, recurrent, structured

FAMILIES = (dense, convolution, recurrent, attention, generative, structured)
ARCHITECTURES = {a.name: a for family in FAMILIES for a in family.ARCHITECTURES}
