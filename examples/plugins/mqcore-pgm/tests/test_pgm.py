"""epgm over libpgm: the suite of all transports, the cases of multicast, forks, rights."""

import os
import shutil
import subprocess
import sys

import pytest
from mqcore_pgm import epgm

from mqcore.testing import MulticastSuite
from mqcore.testing.multicast_suite import ISOLATED, LIMIT, NO_ROUTE

pytestmark = pytest.mark.skipif(bool(epgm.unavailable()), reason=epgm.unavailable() or "-")


class TestEpgm(MulticastSuite):
    scheme, group, rate = "epgm", "239.192.5.1", "pgm_rate"

    def test_a_forked_child_has_none_of_the_descriptors(self, mq_context):
        """It would stay in the group."""
        url = self.fresh()
        port = int(url.rpartition(":")[2])
        sub = mq_context.socket("sub", topics=[b""], bind=url)
        sub.wait_peers(1, LIMIT)
        child = os.fork()
        if child == 0:
            inode = {line.split()[9] for line in open("/proc/self/net/udp")
                     if line.split()[1].endswith(f":{port:04X}")}
            held = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                    if os.path.exists(f"/proc/self/fd/{fd}")}
            os._exit(len(held & {f"socket:[{one}]" for one in inode}) or not inode)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"),
                    reason="takes root, and setpriv to give a right up")
def test_raw_pgm_without_the_right_is_a_clear_error(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(NO_ROUTE)
    done = subprocess.run(["setpriv", "--bounding-set=-net_raw", sys.executable, *ISOLATED, program,
                           "pgm://lo;239.192.1.1:5555"], capture_output=True, text=True,
                          timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stderr
    assert all(line.startswith("AddressDenied") and "CAP_NET_RAW" in line for line in lines), lines
