"""PLAIN's commands: see plain.pxd.

    client  HELLO username password ......  the server judges
    server  WELCOME, or ERROR
    client  INITIATE properties
    server  READY properties ............  traffic, as with NULL
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from mqcore.base.bytes cimport bytes_append
from mqcore.base.status cimport MQ_DONE, MQ_NEED_DATA, MQ_OK
from mqcore.wire.codec cimport ASKING_NOT, Codec, Verdict
from mqcore.wire.zmtp.mechanism cimport (
    FRAME_COMMAND, mechanism_ask, mechanism_forget, mechanism_frame, mechanism_refuse,
)
from mqcore.wire.zmtp.greeting cimport Zmtp
from mqcore.wire.zmtp.ready cimport (
    properties_append, properties_size, refuse, refuse_command, take_properties,
)
from mqcore.wire.zmtp.security cimport PROOF_MAX, Login, login_fits

cdef enum:                    # Zmtp.step: the command that is due
    HELLO = 0
    WELCOME = 1
    INITIATE = 2
    READY = 3


cdef int _say_properties(Codec* self, const char* name, size_t name_size) noexcept nogil:
    cdef size_t size = name_size + properties_size(self.config)
    cdef int rc = mechanism_frame(self, FRAME_COMMAND, size)
    if rc == MQ_OK:
        rc = bytes_append(&self.ctl, name, name_size)
    return rc if rc else properties_append(self.config, &self.ctl)


cdef int _start(Codec* self) noexcept nogil:
    cdef const Login* login
    cdef int rc
    if self.security.server:
        (<Zmtp*> self).step = HELLO
        return MQ_OK
    login = &self.security.logins[0]
    (<Zmtp*> self).step = WELCOME
    self.leaving = ("the peer left when it had read our username and password: it does not accept "
                    "them, or has nobody to ask (libzmq without a ZAP handler)")
    rc = mechanism_frame(self, FRAME_COMMAND, 8 + login.user_size + login.password_size)
    if rc:
        return rc
    bytes_append(&self.ctl, "\x05HELLO", 6)
    bytes_append(&self.ctl, &login.user_size, 1)
    bytes_append(&self.ctl, login.user, login.user_size)
    bytes_append(&self.ctl, &login.password_size, 1)
    return bytes_append(&self.ctl, login.password, login.password_size)


cdef int _welcome(Codec* self) noexcept nogil:
    cdef int rc = mechanism_frame(self, FRAME_COMMAND, 8)
    (<Zmtp*> self).step = INITIATE
    return rc if rc else bytes_append(&self.ctl, "\x07WELCOME", 8)


cdef int _hello(Codec* self, const uint8_t* body, size_t size) noexcept nogil:
    cdef size_t user_size
    cdef size_t password_size
    cdef int rc
    if size < 6 or memcmp(body, b"\x05HELLO", 6) != 0:
        return refuse_command(self, "HELLO", body, size)
    user_size = body[6] if size > 7 else 0
    password_size = body[7 + user_size] if size > 7 + user_size else 0
    if size != 8 + user_size + password_size:
        return refuse(self, "the peer's HELLO is malformed")
    rc = bytes_append(&self.peer.proof, body + 7, user_size) if user_size else MQ_OK
    if rc:
        return rc
    if self.security.asks:
        if password_size:
            rc = bytes_append(&self.peer.password, body + 8 + user_size, password_size)
        return rc if rc else mechanism_ask(self)
    if not login_fits(self.security, body + 7, user_size, body + 8 + user_size, password_size):
        return mechanism_refuse(self, 400, "no such username, or a wrong password", True)
    rc = _welcome(self)
    return rc if rc else MQ_NEED_DATA


cdef int _judged(Codec* self, const Verdict* verdict) noexcept nogil:
    cdef int rc
    self.asking = ASKING_NOT
    mechanism_forget(self)
    if verdict.code != 200:
        return mechanism_refuse(self, verdict.code, verdict.text, True)
    rc = _welcome(self)
    return rc if rc else MQ_NEED_DATA


cdef int _take(Codec* self, uint8_t* body, size_t size) noexcept nogil:
    cdef Zmtp* z = <Zmtp*> self
    cdef int rc
    if z.step == HELLO:
        return _hello(self, body, size)
    if z.step == WELCOME:
        if size >= 6 and memcmp(body, b"\x05HELLO", 6) == 0:
            return refuse(self, "the peer is a client too: one side must judge, with allow=")
        if size != 8 or memcmp(body, b"\x07WELCOME", 8) != 0:
            return refuse_command(self, "WELCOME", body, size)
        z.step = READY
        rc = _say_properties(self, "\x08INITIATE", 9)
        return rc if rc else MQ_NEED_DATA
    if z.step == INITIATE:
        if size < 9 or memcmp(body, b"\x08INITIATE", 9) != 0:
            return refuse_command(self, "INITIATE", body, size)
        rc = take_properties(self, "INITIATE", body + 9, size - 9)
        if rc == MQ_OK:
            rc = _say_properties(self, "\x05READY", 6)
        return rc if rc else MQ_DONE
    if size < 6 or memcmp(body, b"\x05READY", 6) != 0:
        return refuse_command(self, "READY", body, size)
    rc = take_properties(self, "READY", body + 6, size - 6)
    return rc if rc else MQ_DONE


cdef MechanismOps _OPS
_OPS.hello_max = 8 + 2 * PROOF_MAX
_OPS.start = _start
_OPS.take = _take
_OPS.judged = _judged


cdef const MechanismOps* plain_ops() noexcept nogil:
    return &_OPS
