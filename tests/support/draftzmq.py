"""libzmq's draft sockets through ctypes: a peer for those that pyzmq's wheel and the distributions
build without. `LIBRARY` is None, and `WHY` says so, where libzmq is missing or has none (one
that was built with them is found through LD_LIBRARY_PATH)."""

import ctypes
import ctypes.util
import errno

TYPES = {"server": 12, "client": 13, "radio": 14, "dish": 15, "gather": 16, "scatter": 17,
         "dgram": 18, "peer": 19, "channel": 20}
LINGER, RCVTIMEO, SNDTIMEO, LAST_ENDPOINT = 17, 27, 28, 32
SNDMORE = 2
TIME = 5000  # ms


def _load():
    name = ctypes.util.find_library("zmq") or "libzmq.so.5"
    try:
        lib = ctypes.CDLL(name, use_errno=True)
    except OSError:
        return None, "there is no libzmq"
    if not lib.zmq_has(b"draft"):
        return None, "this libzmq was built without its draft sockets"
    for function in ("zmq_ctx_new", "zmq_socket", "zmq_msg_data", "zmq_msg_group"):
        getattr(lib, function).restype = ctypes.c_void_p
    lib.zmq_msg_size.restype = ctypes.c_size_t
    lib.zmq_msg_routing_id.restype = lib.zmq_connect_peer.restype = ctypes.c_uint32
    return lib, ""


LIBRARY, WHY = _load()


class Message(ctypes.Structure):
    _fields_ = (("_", ctypes.c_ubyte * 64),)
    _align_ = 8


def checked(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, errno.errorcode.get(number, str(number)))
    return result


class Draft:
    """One socket in a context of its own."""

    def __init__(self, kind):
        self.context = ctypes.c_void_p(LIBRARY.zmq_ctx_new())
        self.socket = ctypes.c_void_p(LIBRARY.zmq_socket(self.context, TYPES[kind]))
        for option, value in ((LINGER, 0), (RCVTIMEO, TIME), (SNDTIMEO, TIME)):
            self.set(option, value)

    def set(self, option, value):
        number = ctypes.c_int(value)
        checked(LIBRARY.zmq_setsockopt(self.socket, option, ctypes.byref(number), 4))

    def bind(self, url):
        checked(LIBRARY.zmq_bind(self.socket, url.encode()))
        text, size = ctypes.create_string_buffer(256), ctypes.c_size_t(256)
        checked(LIBRARY.zmq_getsockopt(self.socket, LAST_ENDPOINT, text, ctypes.byref(size)))
        return text.value.decode()

    def connect(self, url):
        checked(LIBRARY.zmq_connect(self.socket, url.encode()))

    def connect_peer(self, url):
        number = LIBRARY.zmq_connect_peer(self.socket, url.encode())
        return number or checked(-1)

    def join(self, group):
        checked(LIBRARY.zmq_join(self.socket, group.encode()))

    def send(self, data, routing_id=0, group="", more=False):
        message = Message()
        LIBRARY.zmq_msg_init_size(ctypes.byref(message), ctypes.c_size_t(len(data)))
        ctypes.memmove(LIBRARY.zmq_msg_data(ctypes.byref(message)), data, len(data))
        if routing_id:
            LIBRARY.zmq_msg_set_routing_id(ctypes.byref(message), ctypes.c_uint32(routing_id))
        if group:
            LIBRARY.zmq_msg_set_group(ctypes.byref(message), group.encode())
        checked(LIBRARY.zmq_msg_send(ctypes.byref(message), self.socket, SNDMORE if more else 0))

    def recv(self):
        """(body, routing id, group)"""
        message = Message()
        LIBRARY.zmq_msg_init(ctypes.byref(message))
        checked(LIBRARY.zmq_msg_recv(ctypes.byref(message), self.socket, 0))
        at = ctypes.byref(message)
        body = ctypes.string_at(LIBRARY.zmq_msg_data(at), LIBRARY.zmq_msg_size(at))
        found = (body, LIBRARY.zmq_msg_routing_id(at),
                 ctypes.string_at(LIBRARY.zmq_msg_group(at)).decode())
        LIBRARY.zmq_msg_close(at)
        return found

    def close(self):
        LIBRARY.zmq_close(self.socket)
        LIBRARY.zmq_ctx_term(self.context)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
