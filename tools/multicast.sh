#!/bin/sh
# Runs all tests of multicast: the plug-ins over libpgm and libnorm, libzmq as a peer, lost and
# forged packets in network namespaces. Takes root on a Debian, whose packages it installs.
#
#     sh tools/multicast.sh PYTHON [ARGUMENTS OF PYTEST ...]
#
# PYTHON has mqcore, built. The plug-ins and a pyzmq over Debian's libzmq (PyPI's has no PGM) go
# into build/multicast.
set -e
cd "$(dirname "$0")/.."
python=$1
shift
packages="libpgm-5.3-0 libpgm-dev libnorm1 libzmq3-dev iproute2 iptables"
made=$PWD/build/multicast
libzmq=$made/libzmq/bin/python
have() { dpkg -s $packages >/dev/null 2>&1; }
install() {
    DEBIAN_FRONTEND=noninteractive timeout 400 apt-get install -y -qq --no-install-recommends \
        $packages >&2 </dev/null
}
have || install || { timeout 120 apt-get update -qq >&2; install; }
has_pgm() { "$libzmq" -c 'import sys, zmq; sys.exit(not zmq.has("pgm"))' 2>/dev/null; }
has_pgm || {
    rm -rf "$made/libzmq"
    "$python" -m venv "$made/libzmq"
    # not from pip's cache, which may have PyPI's wheel
    "$libzmq" -m pip install -qq --disable-pip-version-check --no-cache-dir --no-binary pyzmq \
        "pyzmq==27.3.*"
    has_pgm
}
rm -rf "$made/plugins" "$made/source"
mkdir -p "$made/source"
for plugin in mqcore-pgm mqcore-norm; do
    cp -r "examples/plugins/$plugin" "$made/source/"
    PYTHONPATH=$PWD "$python" -m pip install -qq --disable-pip-version-check \
        --no-build-isolation --no-deps --no-index --target "$made/plugins" "$made/source/$plugin"
done
export MULTICAST_LIBZMQ="$libzmq" PYTHONPATH="$made/plugins"
exec "$python" -m pytest -p no:cacheprovider ${@:-examples/plugins/mqcore-pgm/tests examples/plugins/mqcore-norm/tests}
