"""Where a rank that hangs stands, on standard error: after a while, and when its job is ended (SIGTERM). A program imports it before
anything large, so that a hang of an import shows too."""
import faulthandler
import signal


def after(seconds):
    """`seconds`: less than what ends the test. A rank that another one gives up is ended by SIGTERM before."""
    faulthandler.dump_traceback_later(seconds)
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGTERM, chain=True)


def over():
    faulthandler.cancel_dump_traceback_later()
