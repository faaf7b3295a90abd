"""Prints the sum of two integers that a server computes.   add_client.py A B [URL]"""

import sys

import mqcore as mq

a, b, url = (*sys.argv[1:], "tcp://127.0.0.1:5555")[:3]

with mq.Req(connect=url) as client:
    while True:
        try:
            print(client.request(f"{a} {b}".encode(), timeout=2.0).decode())
            break
        except mq.Timeout:  # no worker yet, or the worker with the request has died: try again
            print("no answer yet", file=sys.stderr)
