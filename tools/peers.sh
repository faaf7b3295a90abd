#!/bin/sh
# The tests talk to nngcat and nanocat and run Spark on Java, which Debian has and PyPI has not. Where
# we may, install them; without them the tests that need them are skipped.
missing=
command -v nngcat >/dev/null || missing="$missing nng-utils"
command -v nanocat >/dev/null || missing="$missing nanomsg-utils"
command -v java >/dev/null || missing="$missing openjdk-17-jre-headless"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing (apt install$missing): the tests that need them will be skipped" >&2
    exit 0
fi
install() {
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive timeout 400 apt-get install -y -qq --no-install-recommends \
        $missing >/dev/null 2>&1
}
install || { timeout 60 apt-get update -qq >/dev/null 2>&1 && install; } \
    || echo "cannot be installed:$missing; the tests that need them will be skipped" >&2
