from typing import Any

import numpy as np
from numpy.typing import NDArray

def numbers_of(name: str, values: Any) -> NDArray[np.int64]: ...
