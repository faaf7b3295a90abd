"""Adds two integers for any client.   add_server.py [bind|connect URL]"""

import sys

import mqcore as mq

how, url = sys.argv[1:3] or ("bind", "tcp://127.0.0.1:5555")

with mq.Rep() as server:
    (server.bind if how == "bind" else server.connect)(url)
    for request in server:
        try:
            server.send(b"%d" % sum(map(int, request.split())))
        except ValueError:
            server.send(b"two integers, please")
