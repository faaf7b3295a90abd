#!/bin/sh
# The tests talk to nngcat and nanocat, run Spark on Java, seal messages with libsodium, and go
# through ssh's tunnels, which Debian has and PyPI has not. Where we may, install them; without them
# the tests that need them are skipped. An ssh server is not among them: its package starts one.
#     sh tools/peers.sh [PACKAGE ...]       all, or only those named
missing=
need() {
    [ -z "$wanted" ] || case " $wanted " in *" $1 "*) ;; *) return ;; esac
    missing="$missing $1"
}
wanted=$*
command -v nngcat >/dev/null || need nng-utils
command -v nanocat >/dev/null || need nanomsg-utils
command -v java >/dev/null || need openjdk-17-jre-headless
PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null | grep -q 'libsodium\.so' || need libsodium23
command -v ssh >/dev/null || need openssh-client
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
