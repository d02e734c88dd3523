"""The module optimizer of aiacc.torch itself: what is set there counts."""
import sys

import aiacc.torch.optimizer

sys.modules[__name__] = aiacc.torch.optimizer
