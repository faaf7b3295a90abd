"""Tests that run a foreign library alone, to see that it does what ours is tested for.

Most tests of the aliases take "ours" or "real". With "real" no line of mqcore's runs: such a test
checks what we believe about pyzmq or pynng, and it can fail because that library has a race of its
own. Two that were seen, each in programs without mqcore: libzmq's proxy stops for good after PAUSE
and RESUME (21 of 3,000), and pynng keeps an entry in `pipes` for a connection that was turned away
(14 of 6,000). Such a test has three tries; what needed more than one is listed at the end of the
run. One in which our code runs has one try.
"""

TRIES = 3
PROPERTY = "a foreign library alone"  # of the test's report


def runs_alone(item):
    """Whether the test's parameters name the foreign library and not ours."""
    spec = getattr(item, "callspec", None)
    values = [value for value in spec.params.values() if isinstance(value, str)] if spec else []
    return "real" in values and "ours" not in values


def call(item):
    """Call the test's function as pytest would, up to TRIES times; the last error is the result."""
    names = item._fixtureinfo.argnames
    arguments = {name: item.funcargs[name] for name in names}
    for _ in range(TRIES - 1):
        try:
            return item.obj(**arguments)
        except Exception as error:
            line = f"{item.nodeid}: {type(error).__name__}: {error}"
            item.user_properties.append((PROPERTY, line))
    return item.obj(**arguments)
