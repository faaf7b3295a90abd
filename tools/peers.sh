#!/bin/sh
# Installs what the tests talk to that Debian has and PyPI has not: nngcat and nanocat, Java for
# Spark, libsodium, ssh, and Chromium with its driver. It installs as root with apt, and otherwise
# prints what is missing: the tests that need it are then skipped, or fail with CI=true. An ssh
# server is not among them: its package starts one.
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
PATH="$PATH:/sbin:/usr/sbin" command -v ip >/dev/null || need iproute2
command -v openssl >/dev/null || need openssl
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || need chromium
command -v chromedriver >/dev/null || need chromium-driver
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
