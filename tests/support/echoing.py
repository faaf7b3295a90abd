"""A member of a cluster that gives back what it gets."""


class Echo:
    async def request(self, req):
        return req.body

    async def tunnel(self, tun):
        async for message in tun:
            await tun.asend(message)
