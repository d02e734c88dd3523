"""What the programs of a rank have in common that check a framework's binding: the order of their checks, and how they end."""
import sys
import traceback

import hang_report


def run(hvd, functions, words):
    """Runs the functions check_... one after another, or those named by `words`; the ranks call them in one order."""
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    for name in [name for name in functions if name.startswith("check_") and (not words or name in words)]:
        try:
            functions[name]()
        except Exception:
            traceback.print_exc()
            print(f"rank {rank} of {size}: {name} failed", file=sys.stderr, flush=True)
            sys.exit(1)
    hvd.shutdown()
    hang_report.over()
    print("all is well")


def raises(kind, function, *arguments, **keywords):
    """The text of the exception that the call raises."""
    try:
        function(*arguments, **keywords)
    except kind as error:
        return str(error)
    raise AssertionError(f"{getattr(function, '__name__', function)} did not raise {kind}")
