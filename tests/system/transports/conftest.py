import namespaces
import pytest


@pytest.fixture
def network():
    """A namespace with a link to us: (its name, our device, our address, its address)."""
    with namespaces.linked() as found:
        yield found
