"""Of pyzmq's errors, whoever raises them."""

import pytest


def number(z, call, *args, **kw):
    """The errno of what it raises."""
    with pytest.raises(z.ZMQError) as caught:
        call(*args, **kw)
    return caught.value.errno
