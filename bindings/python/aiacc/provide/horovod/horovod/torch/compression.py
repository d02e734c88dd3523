"""The module compression of aiacc.torch itself: what is set there counts."""
import sys

import aiacc.torch.compression

sys.modules[__name__] = aiacc.torch.compression
