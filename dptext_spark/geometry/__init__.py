"""Formulas of the spaces that words lie in: arrays in, arrays out."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Floats32: TypeAlias = NDArray[np.float32]
WordVectors: TypeAlias = NDArray[np.float16 | np.float32]
"""Vectors as bundles hold them. Before they are multiplied, half precision becomes single."""
