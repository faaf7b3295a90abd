"""Our declarations of libpgm's binary interface against its headers, where these are installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

HEADERS = Path("/usr/include/pgm-5.3")
OURS = Path(__file__).parents[1] / "mqcore_pgm_library.h"

FIELDS = """
#include <stddef.h>
#include <stdio.h>
#include <pgm/pgm.h>
#define OURS 1
int main(void) {
    printf("%zu %zu %zu %zu %zu %zu\\n", offsetof(struct pgm_sk_buff_t, tsi),
           offsetof(struct pgm_sk_buff_t, sequence), offsetof(struct pgm_sk_buff_t, len),
           offsetof(struct pgm_sk_buff_t, data), sizeof(struct pgm_sk_buff_t),
           sizeof(struct pgm_msgv_t));
    printf("%zu %zu %zu\\n", sizeof(struct pgm_sockaddr_t), sizeof(struct pgm_interface_req_t),
           sizeof(pgm_error_t));
    printf("%d %d %d %d %d %d %d\\n", PGM_UDP_ENCAP_MCAST_PORT, PGM_NOBLOCK, PGM_RXW_SQNS,
           PGM_TXW_MAX_RTE, PGM_RATE_REMAIN, PGM_NAK_NCF_RETRIES, PGM_IO_STATUS_TIMER_PENDING);
}
"""
MINE = """
#include <stddef.h>
#include <stdio.h>
#include "mqcore_pgm_library.h"
int main(void) {
    printf("%zu %zu %zu %zu %zu %zu\\n", offsetof(PgmPacket, tsi), offsetof(PgmPacket, sequence),
           offsetof(PgmPacket, size), offsetof(PgmPacket, data), sizeof(PgmPacket),
           sizeof(PgmMessage));
    printf("%zu %zu %zu\\n", sizeof(PgmAddress), sizeof(PgmInterface), sizeof(PgmError));
    printf("%d %d %d %d %d %d %d\\n", PGM_OPT_MCAST_PORT, PGM_OPT_NOBLOCK, PGM_OPT_RXW_SQNS,
           PGM_OPT_TXW_MAX_RTE, PGM_OPT_RATE_REMAIN, PGM_OPT_NAK_NCF_RETRIES,
           PGM_IO_TIMER_PENDING);
}
"""


def layout(folder, name, text):
    source = folder / f"{name}.c"
    source.write_text(text)
    subprocess.run(["cc", "-o", folder / name, source, f"-I{HEADERS}", f"-I{OURS.parent}"],
                   check=True, timeout=120)
    return subprocess.run([folder / name], check=True, capture_output=True, text=True,
                          timeout=20).stdout


@pytest.mark.skipif(not HEADERS.exists() or not OURS.exists() or not shutil.which("cc"),
                    reason="takes libpgm-dev, a compiler and the source folder")
def test_layouts_and_numbers(tmp_path):
    assert layout(tmp_path, "mine", MINE) == layout(tmp_path, "theirs", FIELDS)
