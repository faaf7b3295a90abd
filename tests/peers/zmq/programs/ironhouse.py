"""Everybody has a certificate: the server knows its clients, and they know the server."""
import os
import sys
import tempfile

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
for name in ("server", "client", "stranger"):
    public, secret = zmq.auth.create_certificates(folder, name)
    place = os.path.join(folder, "known" if name == "client" else "all")
    os.makedirs(place, exist_ok=True)
    os.rename(public, os.path.join(place, f"{name}.key"))

context = zmq.Context.instance()
auth = ThreadAuthenticator(context)
auth.start()
auth.allow("127.0.0.1")
auth.configure_curve(domain="*", location=os.path.join(folder, "known"))

server = context.socket(zmq.PUSH)
server.curve_publickey, server.curve_secretkey = zmq.auth.load_certificate(
    os.path.join(folder, "server.key_secret"))
server.curve_server = True
server.bind("tcp://127.0.0.1:*")


def come(name):
    socket = context.socket(zmq.PULL)
    socket.curve_publickey, socket.curve_secretkey = zmq.auth.load_certificate(
        os.path.join(folder, f"{name}.key_secret"))
    socket.curve_serverkey, _ = zmq.auth.load_certificate(os.path.join(folder, "all", "server.key"))
    socket.connect(server.last_endpoint)
    return socket


with come("client") as client:
    server.send(b"Hello")
    if client.poll(5000):
        print(client.recv().decode(), client.mechanism, "OK")
with come("stranger") as stranger:
    print(stranger.poll(300))
auth.stop()
server.close(0)
context.term()
