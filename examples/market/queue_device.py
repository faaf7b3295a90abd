"""A queue: customers line up in front, providers take orders from behind, as many as there are.

    python queue_device.py FRONT-URL BACK-URL [connect:BACK-URL ...]

`mq device router@FRONT-URL dealer@BACK-URL` is the same. With connect: it also lines up at others.
Both ends speak both wires, each peer its own.
"""

import sys
import threading

import mqcore as mq


def watch(events: mq.EventStream) -> None:
    for event in events:
        if event.kind in ("Dropped", "FailedOver", "FailedBack"):
            print(event, flush=True)


def main(front_url: str, *back_urls: str) -> None:
    front, back = mq.Router(bind=front_url), mq.Dealer()
    for url in back_urls:
        if url.startswith("connect:"):
            back.connect(url.removeprefix("connect:"))
        else:
            back.bind(url)
    for events in (front.events(), back.events()):
        threading.Thread(target=watch, args=(events,), daemon=True).start()
    with mq.device(front, back) as queue:
        print(f"open: {front_url}", flush=True)
        queue.wait_stopped()


if __name__ == "__main__":
    main(*sys.argv[1:])
