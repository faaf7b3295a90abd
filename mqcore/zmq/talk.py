"""Talk: text, JSON, pickles and other forms of messages."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from mqcore.zmq.utils import jsonapi


class Talk:
    """What Socket derives from its send and receive. `_deserialize` is where an asynchronous socket
    waits for the message first."""

    def _deserialize(self: Any, recvd: Any, load: Callable[[Any], Any]) -> Any:
        return load(recvd)

    def send_string(self: Any, u: str, flags: int = 0, copy: bool = True, encoding: str = "utf-8",
                    **kwargs: Any) -> Any:
        """send() of text."""
        if not isinstance(u, str):
            raise TypeError("str objects only")
        return self.send(u.encode(encoding), flags, copy, **kwargs)

    def recv_string(self: Any, flags: int = 0, encoding: str = "utf-8") -> Any:
        """recv() of text."""
        return self._deserialize(self.recv(flags), lambda data: data.decode(encoding))

    send_unicode = send_string
    recv_unicode = recv_string

    def send_json(self: Any, obj: Any, flags: int = 0, **kwargs: Any) -> Any:
        """send() of an object as JSON; keywords of send() and of json.dumps()."""
        sending = {name: kwargs.pop(name) for name in ("routing_id", "group") if name in kwargs}
        return self.send(jsonapi.dumps(obj, **kwargs), flags, **sending)

    def recv_json(self: Any, flags: int = 0, **kwargs: Any) -> Any:
        """recv() of an object as JSON."""
        return self._deserialize(self.recv(flags), lambda data: jsonapi.loads(data, **kwargs))

    def send_pyobj(self: Any, obj: Any, flags: int = 0, protocol: int = pickle.DEFAULT_PROTOCOL,
                   **kwargs: Any) -> Any:
        """send() of a pickled object."""
        return self.send(pickle.dumps(obj, protocol), flags, **kwargs)

    def recv_pyobj(self: Any, flags: int = 0) -> Any:
        """recv() of a pickled object: it may run whatever the sender wants."""
        return self._deserialize(self.recv(flags), pickle.loads)

    def send_serialized(self: Any, msg: Any, serialize: Callable[[Any], Any], flags: int = 0,
                        copy: bool = True, **kwargs: Any) -> Any:
        """send_multipart() of what serialize() makes of it."""
        return self.send_multipart(serialize(msg), flags, copy, **kwargs)

    def recv_serialized(self: Any, deserialize: Callable[[list[Any]], Any], flags: int = 0,
                        copy: bool = True) -> Any:
        """What deserialize() makes of recv_multipart()."""
        return self._deserialize(self.recv_multipart(flags, copy), deserialize)
