"""Prices over a cluster: publish to topics, subscribe with wildcards, share work in a group.

    python cluster_prices.py KEY SEED feed px.EUR 1.08 px.USD 0.92      publish
    python cluster_prices.py KEY SEED watch 'px.*'                      print each message
    python cluster_prices.py KEY SEED watch 'px.*' workers              share them with others

Runs on trio; any program of the cluster may run on asyncio.
"""

import sys

import trio

from mqcore import cluster


async def main(key: str, seed: str, what: str, *words: str) -> None:
    async with cluster.ajoin(cluster.Key.load(key), seeds=[seed]) as net:
        if what == "feed":
            for topic, price in zip(words[::2], words[1::2], strict=True):
                print(topic, await net.apublish(topic, price.encode()), "node(s)", flush=True)
            return
        pattern, *group = words
        async with net.asubscribe(pattern, queue=group[0] if group else "") as feed:
            print("ready", flush=True)
            async for message in feed:
                print(message.topic, message.body.decode(), flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    key, seed, what, *words = sys.argv[1:]
    trio.run(main, key, seed, what, *words)
