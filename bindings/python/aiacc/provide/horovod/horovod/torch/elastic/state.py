"""The module elastic.state of aiacc.torch itself: what is set there counts."""
import sys

import aiacc.torch.elastic.state

sys.modules[__name__] = aiacc.torch.elastic.state
