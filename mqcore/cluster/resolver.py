"""cluster://name?key=prod.key&seeds=tcp://10.0.0.5:7400: the plain addresses of a service.

A socket that connects to this follows the members of the service that have plain addresses: adopted
ones (`aadopt`), and those that `aserve(..., urls=)` announces. The socket speaks to them directly,
in its own protocol; the cluster only tells where they are. `seeds` are separated by commas.

Each look-up joins the cluster as a node without services, and leaves it.
"""

from __future__ import annotations

from mqcore.errors import AddressError, Error, OptionError
from mqcore.spi.resolver import Options, Resolver


class Cluster(Resolver):
    scheme = "cluster"
    doc = "the plain addresses of a service in a cluster"
    options = (("key", "text", "", "cluster://: the file of the cluster's key"),
               ("seeds", "text", "", "cluster://: addresses of nodes, separated by commas"))

    def check(self, address: str) -> None:
        if not 0 < len(address) <= 255:
            raise AddressError("the name of a service is missing",
                               hint="write cluster://NAME?key=FILE&seeds=URL")

    def look_up(self, address: str, options: Options) -> list[str]:
        from mqcore import cluster

        seeds = [seed for seed in options["seeds"].split(",") if seed]
        if not options["key"] or not seeds:
            raise OptionError("cluster:// needs key= and seeds=",
                              hint="write cluster://NAME?key=FILE&seeds=URL")
        found: list[str] = []
        wrong: Error | None = None
        with cluster.join(cluster.Key.load(options["key"]), seeds=seeds) as node:
            if len(node.members()) == 1:
                raise cluster.ClusterError(f"no node of the cluster answers at "
                                           f"{', '.join(seeds)}", hint="is one running there?")
            for text in (text for member in node.members(address)
                         for text in member.services[address].urls):
                try:
                    node.links.check(text)
                    found.append(text)
                except Error as error:      # what one member says takes nothing from the others
                    wrong = error
        if wrong is not None and not found:
            raise wrong
        return found


resolver = Cluster()
