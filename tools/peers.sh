#!/bin/sh
# The tests talk to nngcat and nanocat and run Spark on Java, which Debian has and PyPI has not. Where
# we may, install them; without them the tests that need them are skipped.
#     sh tools/peers.sh [PACKAGE ...]       all three, or only those named
missing=
need() {
    command -v "$1" >/dev/null && return
    [ -z "$wanted" ] || case " $wanted " in *" $2 "*) ;; *) return ;; esac
    missing="$missing $2"
}
wanted=$*
need nngcat nng-utils
need nanocat nanomsg-utils
need java openjdk-17-jre-headless
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing: apt install$missing" >&2
    exit 0
fi
install() {
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive timeout 400 apt-get install -y -qq --no-install-recommends \
        $missing >/dev/null 2>&1
}
install || { timeout 60 apt-get update -qq >/dev/null 2>&1 && install; } \
    || echo "cannot be installed:$missing" >&2
