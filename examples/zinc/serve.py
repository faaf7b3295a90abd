"""Zinc in a browser: every page that opens this address edits the same text.

    python serve.py                         a root: prints the page, then its PUB and PULL address
    python serve.py PORT PUB-URL PULL-URL   another endpoint, a child of that one, with a page

The page (index.html, zinc.js) comes over HTTP. Its edits travel over ws:// to the sockets of this
endpoint, which other endpoints use over tcp:// at the same time.
"""

import asyncio
import json
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from endpoint import Endpoint

HERE = Path(__file__).parent


class Page(SimpleHTTPRequestHandler):
    """The files of this folder, zws.js of ../browser, and urls.json: where the sockets listen."""

    def __init__(self, urls, *args):
        self.urls = urls
        super().__init__(*args, directory=str(HERE))

    def translate_path(self, path):
        if path.partition("?")[0] == "/zws.js":
            return str(HERE.parent / "browser" / "zws.js")
        return super().translate_path(path)

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


async def main(port=0, *host):
    # A page of another origin could otherwise edit the text from any user's browser.
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), partial(Page, urls := {}))
    page = f"http://127.0.0.1:{server.server_port}"
    bind = ["tcp://127.0.0.1:0"] * 2 + [f"ws://127.0.0.1:0/{name}?origin={page}"
                                        for name in ("down", "up")]
    async with Endpoint(bind, host or None) as one:
        urls["down"], urls["up"] = one.urls[2:]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(page, *one.at, flush=True)
        while True:
            await one.changed.wait()
            one.changed.clear()
            print(json.dumps(one.document.text()), flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        pass
