"""tools/peers.sh on machines that lack something: what it installs, what it prints otherwise.

The machine is a folder of programs that stand for the real ones; nothing is installed.
"""

import shutil
import subprocess

import pytest
from sources import ROOT

SCRIPT = ROOT / "tools" / "peers.sh"
SHELL = ["sh", "cat", "grep", "tail", "mktemp", "rm", "timeout"]
PEERS = ["nngcat", "nanocat", "java", "ssh", "ip", "openssl", "curl", "chromium", "chromedriver"]
APT = """#!/bin/sh
echo "$*" >> {folder}/calls
case "$*" in
    update*) exit 0 ;;
    *"{bad}"*) echo "Reading package lists..."; echo "E: {reason}"; exit 100 ;;
esac
"""


class Machine:
    """PATH is one folder: what the script needs, the peers that are there, id and apt-get."""

    def __init__(self, folder):
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in SHELL:
            (self.bin / name).symlink_to(shutil.which(name))
        self.program("ldconfig", "#!/bin/sh\necho libsodium.so.23\n")
        self.program("id", "#!/bin/sh\necho 0\n")

    def program(self, name, text="#!/bin/sh\n"):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def have(self, *names):
        for name in names:
            self.program(name)

    def apt(self, bad="a package that nothing asks for", reason=""):
        self.program("apt-get", APT.format(folder=self.folder, bad=bad, reason=reason))

    def run(self, *packages):
        """(standard output, standard error) of a run, which ends with 0 whatever happens."""
        script = SCRIPT.read_text().replace('PATH="$PATH:/usr/sbin:/sbin"', "")
        copy = self.folder / "peers.sh"
        copy.write_text(script)
        done = subprocess.run(["sh", copy, *packages], env={"PATH": str(self.bin)}, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, check=False)
        assert done.returncode == 0
        return done.stdout, done.stderr

    def installed(self):
        """The packages of each call of apt-get install."""
        calls = self.folder / "calls"
        if not calls.exists():
            return []
        found = [line.split() for line in calls.read_text().splitlines()]
        skip = ("install", "-", "DPkg", "Acquire")
        return [[word for word in words if not word.startswith(skip)]
                for words in found if "install" in words]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_machine_that_has_all_is_left_alone(machine):
    machine.have(*PEERS)
    machine.apt()
    assert machine.run() == ("", "") and machine.installed() == []


def test_root_installs_what_is_missing_in_one_call(machine):
    machine.have(*PEERS[2:])
    machine.apt()
    assert machine.run() == ("installing nng-utils nanomsg-utils\n", "")
    assert machine.installed() == [["nng-utils", "nanomsg-utils"]]


def test_only_the_packages_that_are_named(machine):
    machine.apt()
    machine.run("openjdk-17-jre-headless")
    assert machine.installed() == [["openjdk-17-jre-headless"]]


def test_a_user_gets_the_command_and_what_the_packages_are_for(machine):
    machine.have(*PEERS[1:])
    machine.apt()
    machine.program("id", "#!/bin/sh\necho 1000\n")
    out, err = machine.run()
    assert out == "" and machine.installed() == []
    assert "    nng-utils: nngcat, a peer that speaks SP\n" in err
    assert err.endswith("    sudo apt-get install nng-utils\n") and "CI=true" in err


def test_a_system_without_apt_is_pointed_to_its_own_package_manager(machine):
    machine.have(*PEERS[1:])
    _, err = machine.run()
    assert "nng-utils" in err and "your system's package manager" in err and "apt" not in err


def test_a_package_that_does_not_exist_keeps_no_other_away(machine):
    machine.have(*PEERS[3:])
    machine.apt(bad="openjdk-17", reason="Unable to locate package openjdk-17-jre-headless")
    _, err = machine.run()
    assert err == "", "default-jre-headless did it"
    assert machine.installed()[2:] == [["nng-utils"], ["nanomsg-utils"],
                                       ["openjdk-17-jre-headless"], ["default-jre-headless"]]
    machine.apt(bad="jre-headless", reason="Unable to locate package default-jre-headless")
    _, err = machine.run()
    assert err == ("apt-get cannot install openjdk-17-jre-headless: E: Unable to locate package "
                   "default-jre-headless\n    openjdk-17-jre-headless: Java, which runs Spark\n")


def test_without_network_it_gives_up_after_the_second_try(machine):
    machine.have(*PEERS[2:])
    machine.apt(bad="install", reason="Failed to fetch http://deb.debian.org/x.deb")
    _, err = machine.run()
    assert len(machine.installed()) == 2
    assert "cannot reach its mirror" in err and "nanomsg-utils: nanocat" in err
