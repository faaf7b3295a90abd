"""examples/cluster_clouds.py: clouds that are killed, as processes."""

from pathlib import Path

import pytest
from programs import mq, run, starter

CLOUDS = Path(__file__).resolve().parents[3] / "examples" / "cluster_clouds.py"


class Clouds:
    def __init__(self, start, folder):
        self.start = start
        self.folder = folder
        self.seeds = {}
        self.programs = {}
        self.door = ""
        self.key("federation")

    def key(self, name):
        path = self.folder / f"{name}.key"
        if not path.exists():
            assert run(*mq("cluster", "key", "new", path))[0] == 0
        return path

    def gateway(self, cloud, *zone):
        program = self.start(CLOUDS, "gateway", cloud, self.key(cloud), self.key("federation"),
                             *[self.door][:bool(self.door)], *zone)
        self.seeds[cloud], door = program.line().split()
        self.door = self.door or door
        self.programs.setdefault(cloud, []).append(program)

    def worker(self, cloud):
        program = self.start(CLOUDS, "worker", cloud, self.key(cloud), self.seeds[cloud])
        program.line()
        self.programs.setdefault(cloud, []).append(program)

    def ask(self, cloud):
        return self.start(CLOUDS, "ask", self.key(cloud), self.seeds[cloud])

    def kill(self, cloud, which=slice(None)):
        for program in self.programs[cloud][which]:
            program.process.kill()
            program.process.wait()
        del self.programs[cloud][which]


@pytest.fixture
def clouds(tmp_path):
    with starter() as start:
        yield Clouds(start, tmp_path)


def until(asking, cloud):
    """Read answers until one is of that cloud. All come from a worker of one of the clouds."""
    while True:
        found = asking.line().split()
        assert found[0] in ("east", "west") and found[1].isdigit()
        if found[0] == cloud:
            return


@pytest.mark.slow
def test_the_workers_of_a_cloud_die(clouds):
    for cloud in ("east", "west"):
        clouds.gateway(cloud)
        clouds.worker(cloud)
    asking = clouds.ask("east")
    until(asking, "east")
    clouds.kill("east", slice(1, 2))
    until(asking, "west")
    clouds.worker("east")
    until(asking, "east")       # its own come first again
    assert asking.process.poll() is None


def test_a_whole_cloud_dies(clouds):
    """Gateway and all: a third cluster that prefers this zone goes on with the other one."""
    for cloud in ("east", "west"):
        clouds.gateway(cloud)
        clouds.worker(cloud)
    clouds.gateway("office", "east")
    asking = clouds.ask("office")
    until(asking, "east")
    clouds.kill("east")
    until(asking, "west")
    assert asking.process.poll() is None
