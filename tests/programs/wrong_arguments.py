"""For the programs of ranks that give every argument of a function a value of no use."""
import inspect


class Odd:
    """Of no type that any argument takes."""


ODD = Odd()


def refused(function, name, value, given):
    """The sentence: it names the argument."""
    try:
        function(**{**given, name: value})
    except (TypeError, ValueError, BufferError) as error:
        assert name in str(error) and "\n" not in str(error), (function, name, error)
        return str(error)
    raise AssertionError(f"{function} took {name}={value!r}")


def refuses_each(function, given, leave=()):
    """Every argument but those to leave, which take anything. `given`: values of those without a default."""
    parameters = [one for one in inspect.signature(function).parameters.values() if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    assert not set(leave) - {one.name for one in parameters}, (function, leave)
    for one in parameters:
        if one.name not in leave:
            refused(function, one.name, ODD, {each.name: given[each.name]() for each in parameters if each.default is each.empty})
