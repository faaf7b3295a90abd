"""A feed of prices: one publisher, any number of subscribers, each to the pairs it wants.

    feed.py publish   bind URL [SUBSCRIBERS [TICKS]]    waits for so many subscribers, then starts
    feed.py subscribe URL [PAIR ...]                    prints; ends with the feed
    feed.py forward   FRONT-URL BACK-URL [SUBSCRIBERS]  stands between publishers and subscribers

Through a forwarder the publisher says `connect FRONT-URL` and subscribers take BACK-URL; neither
program changes, and publishers may come and go. To a publisher the forwarder is one subscriber,
however many stand behind it, so it is the forwarder that waits for them.
"""

import random
import sys

import mqcore as mq

PAIRS = ("EURUSD", "USDJPY", "GBPUSD", "USDCHF")
END = b"end"


def publish(how: str, url: str, subscribers: int = 1, ticks: int = 1000) -> None:
    dice = random.Random(1)
    prices = dict.fromkeys(PAIRS, 10000)
    with mq.Pub() as feed:
        print((feed.bind if how == "bind" else feed.connect)(url).url, flush=True)
        feed.wait_subscribers(END, n=subscribers, timeout=30.0)
        for _ in range(ticks):
            pair = dice.choice(PAIRS)
            prices[pair] += dice.randint(-5, 5)
            feed.send_parts([pair.encode(), b"%d" % prices[pair]])
        feed.send_parts([END, b""])


def subscribe(url: str, *pairs: str) -> None:
    counts = dict.fromkeys(pairs or PAIRS, 0)
    last = dict.fromkeys(counts, 0)
    with mq.Sub(connect=url, topics=[*counts, END], recv_timeout=30.0) as feed:
        for tick in feed.messages():
            if tick.topic == END:
                break
            pair = str(tick.topic or b"", "ascii")
            counts[pair] += 1
            last[pair] = int(tick.body)
    for pair in counts:
        print(f"{pair} {counts[pair]} ticks, last {last[pair]}")


def forward(front_url: str, back_url: str, subscribers: int = 0) -> None:
    front, back = mq.XSub(bind=front_url), mq.XPub(bind=back_url)
    print(front.endpoints[0].url, back.endpoints[0].url, flush=True)
    back.wait_subscribers(END, n=subscribers, timeout=30.0)
    with mq.device(front, back) as forwarder:
        forwarder.wait_stopped()


def main(role: str, *args: str) -> None:
    if role == "publish":
        publish(args[0], args[1], *map(int, args[2:]))
    elif role == "subscribe":
        subscribe(*args)
    else:
        forward(args[0], args[1], *map(int, args[2:]))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass
