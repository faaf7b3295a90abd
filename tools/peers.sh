#!/bin/sh
# Installs the programs that the tests talk to and that PyPI does not have: nngcat and nanocat, Java
# for Spark, libsodium, ssh, OpenSSL's command, curl, `ip`, Chromium with its driver. An ssh server is
# not among them, because its package starts one.
#
#     sh tools/peers.sh [PACKAGE ...]       all of them, or only these packages
#
# With FULL=1 also what only the slow tests of `make test-full` talk to: libpgm and libnorm.
#
# As root on a machine with apt-get, the script installs what is missing. Otherwise it prints what
# is missing, why, and the command that installs it. It always exits with 0: without a program the
# tests that need it are skipped, or fail with CI=true.
wanted=$*
PATH="$PATH:/usr/sbin:/sbin"
missing= reasons= line="
"
need() {    # the package, its name elsewhere (or the same), what it is for
    [ -z "$wanted" ] || case " $wanted " in *" $1 "*) ;; *) return ;; esac
    missing="$missing $1|$2"
    reasons="$reasons    $1: $3$line"
}
have() {
    command -v "$1" >/dev/null
}
have nngcat || need nng-utils nng-utils "nngcat, a peer that speaks SP"
have nanocat || need nanomsg-utils nanomsg-utils "nanocat, a peer that speaks SP"
have java || need openjdk-17-jre-headless default-jre-headless "Java, which runs Spark"
ldconfig -p 2>/dev/null | grep -q 'libsodium\.so' ||
    need libsodium23 libsodium26 "libsodium, for CURVE in libzmq and in mqcore"
have ssh || need openssh-client openssh-client "ssh, for pyzmq's tunnels"
have ip || need iproute2 iproute2 "ip, for tests in network namespaces"
have openssl || need openssl openssl "openssl, a peer that speaks TLS"
have curl || need curl curl "curl, a client of the HTTP gateway"
have chromium || have chromium-browser ||
    need chromium chromium-browser "a browser, a peer that speaks WebSocket"
have chromedriver || need chromium-driver chromium-chromedriver "the driver of that browser"
[ -z "${FULL:-}" ] || ldconfig -p 2>/dev/null | grep -q 'libpgm-5\.3\.so' ||
    need libpgm-5.3-0 libpgm "libpgm, for a plug-in of multicast"
[ -z "${FULL:-}" ] || ldconfig -p 2>/dev/null | grep -q 'libnorm\.so\.1' ||
    need libnorm1 libnorm "libnorm, for a plug-in of multicast"
[ -n "$missing" ] || exit 0

first() {   # the names by which Debian knows the packages
    for pair in $missing; do printf ' %s' "${pair%|*}"; done
}
if [ "$(id -u)" != 0 ] || ! have apt-get; then
    { echo "some tests need programs that this machine does not have:"
      printf '%s' "$reasons"
      echo "without them these tests are skipped, or fail with CI=true; to install them:"
      if have apt-get; then echo "    sudo apt-get install$(first)"
      else echo "    use your system's package manager; the names above are Debian's"
      fi; } >&2
    exit 0
fi

said=$(mktemp)
trap 'rm -f "$said"' EXIT
install() {
    DEBIAN_FRONTEND=noninteractive timeout 400 apt-get install -y -qq --no-install-recommends \
        -o DPkg::Lock::Timeout=120 -o Acquire::Retries=1 -o Acquire::http::Timeout=20 \
        -o Acquire::https::Timeout=20 "$@" >"$said" 2>&1 </dev/null
}
unreachable() {
    grep -q 'Failed to fetch\|Temporary failure resolving' "$said"
}
echo "installing$(first)"
# shellcheck disable=SC2046
install $(first) && exit 0
timeout 60 apt-get update -qq >/dev/null 2>&1 </dev/null
# shellcheck disable=SC2046
install $(first) && exit 0
if unreachable; then
    { echo "apt-get cannot reach its mirror, and some tests need these programs:"
      printf '%s' "$reasons"
      echo "without them these tests are skipped, or fail with CI=true"
    } >&2
    exit 0
fi
# one that does not exist here must not keep the others away
for pair in $missing; do
    install "${pair%|*}" || install "${pair#*|}" || {
        why=$(grep '^E: ' "$said" | tail -n 1)
        echo "apt-get cannot install ${pair%|*}: ${why:-it gave no reason}"
        printf '%s' "$reasons" | grep "^    ${pair%|*}: "
    } >&2
done
exit 0
