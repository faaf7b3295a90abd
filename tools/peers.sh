#!/bin/sh
# The tests talk to nngcat and nanocat, which Debian has and PyPI has not. Where we may, install them;
# without them the tests that need them are skipped.
command -v nngcat >/dev/null && command -v nanocat >/dev/null && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "nngcat and nanocat are missing (apt install nng-utils nanomsg-utils):" \
        "the tests that talk to them will be skipped" >&2
    exit 0
fi
install() {
    DEBIAN_FRONTEND=noninteractive timeout 200 apt-get install -y -qq --no-install-recommends \
        nng-utils nanomsg-utils >/dev/null 2>&1
}
install || { timeout 60 apt-get update -qq >/dev/null 2>&1 && install; } \
    || echo "nng-utils and nanomsg-utils cannot be installed: their tests will be skipped" >&2
