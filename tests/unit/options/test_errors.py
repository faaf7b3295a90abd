import copy
import errno
import pickle

import pytest

from mqcore import errors
from mqcore.errors import BindError, Error, all_errors

BUILTIN = {
    "Timeout": TimeoutError, "SendTimeout": TimeoutError, "RecvTimeout": TimeoutError,
    "WaitTimeout": TimeoutError, "ConnectTimeout": TimeoutError, "UsageError": TypeError,
    "NotSupported": NotImplementedError, "AddressError": ValueError, "BindError": OSError,
    "UnknownTransport": ValueError, "OptionError": ValueError, "MessageTooLarge": ValueError,
}
FIELDS = {
    "SendTimeout": {"sent", "why", "peers"}, "WaitTimeout": {"have", "want", "why"},
    "ConnectTimeout": {"last"}, "AddressError": {"position"},
    "UnknownTransport": {"position", "known"}, "HandshakeFailed": {"reason"},
    "PluginError": {"distribution", "remedy"},
}


@pytest.mark.parametrize("cls", all_errors(), ids=lambda cls: cls.__name__)
def test_every_error(cls):
    error = cls("what happened", hint="do this")
    assert str(error) == "what happened; do this" and error.code and error.hint == "do this"
    assert isinstance(error, Error) and issubclass(cls, BUILTIN.get(cls.__name__, Exception))
    assert str(cls()) and cls.__doc__
    for name in FIELDS.get(cls.__name__, ()):
        assert hasattr(error, name)
    with pytest.raises(TypeError, match="no field nonsense"):
        cls("x", nonsense=1)


def test_codes_are_distinct():
    codes = [cls.code for cls in all_errors()]
    assert len(set(codes)) == len(codes) == 28


@pytest.mark.parametrize("cls", all_errors(), ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("again", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))])
def test_they_survive_copy_and_pickle(cls, again):
    error = cls("text", hint="hint", **{name: 7 for name in cls.fields})
    other = again(error)
    assert type(other) is cls and str(other) == str(error)
    assert all(getattr(other, name) == 7 for name in cls.fields)


@pytest.mark.parametrize(("number", "cls"), [
    (errno.EADDRINUSE, errors.AddressInUse), (errno.EADDRNOTAVAIL, errors.AddressNotAvailable),
    (errno.EACCES, errors.AddressDenied), (errno.ENOENT, errors.AddressNotAvailable),
    (errno.EIO, BindError),
])
def test_bind_errors_keep_errno(number, cls):
    error = BindError.of(number, "cannot listen on x")
    assert type(error) is cls and error.errno == number and isinstance(error, OSError)
    assert str(error).startswith("cannot listen on x: ")
