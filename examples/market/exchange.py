"""An exchange: customers order here, and it forwards to the provider with the lowest current price.

    python exchange.py NAME FRONT-URL QUOTES-URL [URL ...]

It asks all providers for quotes repeatedly. An order with a limit, `max 4 for 5`, waits until a
quote fits or its 5 seconds are over. An order without a quote goes to the URLs, if there are some:
other exchanges, or providers in the order of their priority (tcp://cheap:5601?prio=1).

What it forwards keeps its envelope, so the answer finds the way back, and an order that goes round
in a circle of exchanges is found out by the length of it.

Environment: INTERVAL seconds between surveys (0.25)
"""

import asyncio
import os
import re
import sys
from dataclasses import dataclass

import mqcore as mq

INTERVAL = float(os.environ.get("INTERVAL", "0.25"))
LIMIT = re.compile(rb" max (\d+) for ([\d.]+)$")


@dataclass
class Order:
    parts: list[bytes]  # its way back, an empty part, its text
    limit: float = float("inf")
    until: float = 0.0

    @property
    def number(self) -> bytes:
        return self.parts[-1].split(maxsplit=1)[0]


@dataclass
class Offer:
    price: int
    name: str
    provider: mq.Dealer


class Exchange:
    def __init__(self, name: str, front: mq.Router, elsewhere: mq.Dealer) -> None:
        self.name = name
        self.front = front
        self.elsewhere = elsewhere
        self.offers: dict[str, Offer] = {}  # by url
        self.held: dict[bytes, Order] = {}  # by number: an order that is given again is the same

    async def take_orders(self) -> None:
        while True:
            order = Order(await self.front.arecv_parts(), until=asyncio.get_running_loop().time())
            if limit := LIMIT.search(order.parts[-1]):
                order.limit = int(limit[1])
                order.until += float(limit[2])
            else:
                order.until += 5.0
            if order.parts.index(b"") >= self.front.max_hops:
                why = f"hop limit of {self.front.max_hops} reached at {self.name}"
                await self.refuse(order, f"{why}: do exchanges forward in a circle?")
            elif not await self.place(order):
                if order.number not in self.held:
                    print(f"{self.name} holds {order.parts[-1].decode()!r}", flush=True)
                    self.held[order.number] = order

    async def place(self, order: Order) -> bool:
        """To the cheapest within the limit, if there is one."""
        best = min(self.offers.values(), key=lambda offer: offer.price, default=None)
        if best is not None and best.price <= order.limit:
            await best.provider.asend_parts(order.parts)
        elif self.elsewhere.endpoints and order.limit == float("inf"):
            await self.elsewhere.asend_parts(order.parts)
        else:
            return False
        return True

    async def refuse(self, order: Order, why: str) -> None:
        text = order.number + b" error: " + why.encode()
        await self.front.asend_parts([*order.parts[:-1], text])

    async def bring_back(self, provider: mq.Dealer) -> None:
        try:
            while True:
                await self.front.asend_parts(await provider.arecv_parts())
        except mq.SocketClosed:
            pass

    async def survey(self, providers: mq.Surveyor, tasks: asyncio.TaskGroup) -> None:
        while True:
            quotes: dict[str, tuple[int, str]] = {}
            async for quote in providers.asurvey(b"quote", deadline=0.1):
                name, amount, url = quote.decode().split()
                quotes[url] = int(amount), name
            for url in self.offers.keys() - quotes.keys():
                await self.offers.pop(url).provider.aclose(0)
            for url, (price, name) in quotes.items():
                if url not in self.offers:
                    provider = mq.Dealer(connect=url, wire="sp")  # a survey's wire, so they know it
                    self.offers[url] = Offer(price, name, provider)
                    tasks.create_task(self.bring_back(provider))
            await self.look_at_held()
            await asyncio.sleep(INTERVAL)

    async def look_at_held(self) -> None:
        for number, order in list(self.held.items()):
            if await self.place(order):
                del self.held[number]
            elif order.until < asyncio.get_running_loop().time():
                del self.held[number]
                await self.refuse(order, "nobody offers that so cheaply")


async def main(name: str, front_url: str, quotes_url: str, *urls: str) -> None:
    async with (
        mq.Router(bind=front_url, mandatory=False) as front,
        mq.Dealer(connect=urls) as elsewhere,
        mq.Surveyor(bind=quotes_url) as providers,
        asyncio.TaskGroup() as tasks,
    ):
        exchange = Exchange(name, front, elsewhere)
        tasks.create_task(exchange.take_orders())
        tasks.create_task(exchange.bring_back(elsewhere))
        tasks.create_task(exchange.survey(providers, tasks))
        print(f"open: {front_url}", flush=True)
        async for event in elsewhere.events():
            if event.kind in ("FailedOver", "FailedBack"):
                print(event, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
