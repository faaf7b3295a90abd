"""zmq.ssh: connections through a server that one can log in to."""

from mqcore.zmq.ssh import forward, tunnel
from mqcore.zmq.ssh.tunnel import (
    openssh_tunnel,
    paramiko_tunnel,
    ssh_tunnel,
    try_passwordless_ssh,
    tunnel_connection,
)

__all__ = ["forward", "openssh_tunnel", "paramiko_tunnel", "ssh_tunnel", "try_passwordless_ssh",
           "tunnel", "tunnel_connection"]
