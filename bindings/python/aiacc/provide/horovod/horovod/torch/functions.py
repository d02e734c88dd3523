"""The module functions of aiacc.torch itself: what is set there counts."""
import sys

import aiacc.torch.functions

sys.modules[__name__] = aiacc.torch.functions
