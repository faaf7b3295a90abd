"""What a plug-in in Cython needs of messages, buffers and results, in one place.

These names come from `mqcore/base`. Plug-ins outside the tree import them from here, and
`PATTERN_ABI` covers them. They are documented in `message.pxd` (handles and vectors), `slab.pxd`
(owners of large bodies, the pool of a socket: `Host.pool`) and `status.pxd`.
"""

from mqcore.base.message cimport (
    MSG_CONTROL, MSG_ENVELOPE, MSG_INLINE_MAX, MSG_MORE, Msg, MsgVec, msg_close, msg_copy, msg_data,
    msg_init, msg_init_copy, msg_init_inline, msg_size, vec_clear, vec_fini, vec_grow, vec_push,
)
from mqcore.base.slab cimport Owner, Pool
from mqcore.base.status cimport (
    MQ_AGAIN, MQ_CLOSED, MQ_DROPPED, MQ_FULL, MQ_GONE, MQ_INVALID, MQ_NO_PEER, MQ_NOMEM, MQ_OK,
    MQ_OVER, MQ_STATE, MQ_UNSUPPORTED,
)
