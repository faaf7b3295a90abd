"""Serves a page that is a peer: REQ, SUB and DEALER in a browser.   serve.py [PORT]

Open the address that it prints. The page (index.html, zws.js) comes over HTTP; its messages come
over ws:// to ordinary sockets of this program, which other programs may use at the same time.
"""

import json
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import mqcore as mq


class Page(SimpleHTTPRequestHandler):
    """The files of this folder, and urls.json: where the sockets listen."""

    def __init__(self, urls, *args):
        self.urls = urls
        super().__init__(*args, directory=str(Path(__file__).parent))

    def do_GET(self):
        if self.path != "/urls.json":
            return super().do_GET()
        body = json.dumps(self.urls).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def answer_sums(rep):
    for request in rep:
        try:
            a, b = request.split()
            rep.send(b"%d" % (int(a) + int(b)))
        except ValueError:
            rep.send(b"two integers, please")


def tell_time(pub):
    while True:
        pub.send_parts([b"clock", time.strftime("%H:%M:%S").encode()])
        time.sleep(1)


def chat(router):
    """Everybody hears what anybody says."""
    names = {}
    while True:
        guest, what, *line = router.recv_parts()
        name = names.setdefault(guest, b"guest %d" % (len(names) + 1))
        said = b"has come" if what == b"hello" else line[0]
        for each in list(names):
            try:
                router.send_to(each, name, said)
            except mq.PeerError:
                del names[each]  # has closed the page


def main(port=0):
    # A page of another origin could otherwise talk to these sockets from any user's browser.
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), partial(Page, urls := {}))
    page = f"http://127.0.0.1:{server.server_port}"
    where = f"ws://127.0.0.1:0/%s?origin={page}"
    with mq.Rep() as rep, mq.Pub() as pub, mq.Router() as router:
        urls["sum"], urls["clock"], urls["chat"] = (
            socket.bind(where % name).url
            for socket, name in ((rep, "sum"), (pub, "clock"), (router, "chat")))
        for work, socket in ((answer_sums, rep), (tell_time, pub), (chat, router)):
            threading.Thread(target=work, args=(socket,), daemon=True).start()
        print(page, *urls.values(), flush=True)
        server.serve_forever()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass
