#!/bin/sh
# Fetches brokers from Debian's packages into build/brokers: those that `make test-brokers` talks to,
# and with `perf` also those that only `make perf-brokers` measures. It installs and starts nothing.
# It prints the folder that holds usr/bin and usr/lib.
set -e
cd "$(dirname "$0")/.."
redis="redis-server redis-tools libjemalloc2 liblzf1 libatomic1"
nats="nats-server"
mosquitto="mosquitto libmosquitto1 libcjson1 libdlt2 libwrap0 libcap2 libssl3 libsystemd0"
rabbitmq="rabbitmq-server erlang-base erlang-asn1 erlang-crypto erlang-eldap erlang-ftp
    erlang-inets erlang-mnesia erlang-os-mon erlang-parsetools erlang-public-key
    erlang-runtime-tools erlang-ssl erlang-syntax-tools erlang-tftp erlang-tools erlang-xmerl"
# its jars, and those that it needs with the broker: scheme; it runs on the machine's own Java
activemq="libactivemq-java libactivemq-protobuf-java libgeronimo-jms-1.1-spec-java
    libgeronimo-j2ee-management-1.1-spec-java libgeronimo-jta-1.2-spec-java libhawtbuf-java
    libslf4j-java libjackson2-core-java libjackson2-databind-java libjackson2-annotations-java"
packages=$(echo $redis $nats $mosquitto $rabbitmq $activemq)
more="beanstalkd activemq"      # with what they need; of Java only the libraries
root=$PWD/build/brokers/root
updated() {     # a download, once more with fresh lists, which may be missing or old
    "$@" >&2 || { timeout 120 apt-get update -qq >&2; "$@" >&2; }
}
if [ "$(cat build/brokers/complete 2>/dev/null)" != "$packages" ]; then
    rm -rf build/brokers
    mkdir -p build/brokers/packages "$root"
    cd build/brokers/packages
    updated timeout 300 apt-get download -qq -o APT::Sandbox::User=root $packages
    for package in *.deb; do dpkg -x "$package" "$root"; done
    echo "$packages" > ../complete
    cd ../../..
fi
if [ "$1" = perf ] && [ "$(cat build/brokers/complete-perf 2>/dev/null)" != "$more" ]; then
    mkdir -p build/brokers/packages/partial
    cd build/brokers/packages
    needed() {      # Java itself comes from the system, its libraries do not
        apt-cache depends -i --recurse $more | grep -e '^lib.*-j\(ava\|ni\)$'
    }
    [ -n "$(needed)" ] || timeout 120 apt-get update -qq >&2
    list="$more $(needed)"
    updated timeout 300 apt-get download -qq -o APT::Sandbox::User=root $list
    for package in $list; do dpkg -x "$package"_*.deb "$root"; done
    echo "$more" > ../complete-perf
    cd ../../..
fi
echo "$root"
