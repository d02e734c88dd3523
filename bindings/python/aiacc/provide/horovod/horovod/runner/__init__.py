"""horovod.runner.run is horovod.run. Of what else Horovod's launcher has, the helpers that programs and Horovod's own tests import."""
from horovod import run

__all__ = ["run"]
