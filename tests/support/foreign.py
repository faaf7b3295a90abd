"""Tests that run a foreign library alone, to see that it does what ours is tested for.

Most tests of the aliases take "ours" or "real". With "real" no line of mqcore's runs: such a test
checks what we believe about pyzmq or pynng, and it can fail, or crash, because that library has a
race of its own. Two that were seen, each in programs without mqcore: libzmq's proxy stops for good
after PAUSE and RESUME (21 of 3,000), and nng's threads end the process with a segmentation fault
(2 of 20). These tests have the mark `foreign` and run with `make test-foreign`, which is needed
when an expectation changes.
"""


def runs_alone(item):
    """Whether the test's parameters name the foreign library and not ours."""
    spec = getattr(item, "callspec", None)
    values = [value for value in spec.params.values() if isinstance(value, str)] if spec else []
    return "real" in values and "ours" not in values


def leave_out(config, items):
    """Deselect them, unless `-m` names the mark."""
    alone = [item for item in items if runs_alone(item)]
    for item in alone:
        item.add_marker("foreign")
    if alone and "foreign" not in (config.option.markexpr or ""):
        config.hook.pytest_deselected(items=alone)
        items[:] = [item for item in items if not item.get_closest_marker("foreign")]
