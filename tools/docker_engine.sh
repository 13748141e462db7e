#!/bin/sh
# Run a command with a Docker engine that has a nats-server image: an engine that answers already, or, for root on
# Linux, one of our own from unpacked Debian packages, in private namespaces and without firewall rules or traces.
#
#   sh tools/docker_engine.sh run pytest tests/docker -m docker
#
# NATS_IMAGE_BINARY is the nats-server that goes into the image. Where no engine can be had, the command runs without
# one (and skips its tests with the reason in NO_DOCKER); with REQUIRE_DOCKER=1 that is an error.
set -eu
IMAGE=jsclient-test/nats:local
here=$(cd "$(dirname "$0")" && pwd)
SUITE=bookworm
PACKAGES="docker.io containerd runc tini iptables libip4tc2 libip6tc2 libxtables12 libmnl0 libnetfilter-conntrack3
    libnfnetlink0 libnftnl11 libdevmapper1.02.1 libseccomp2"

without() {
    NO_DOCKER=$1
    shift
    echo "docker: $NO_DOCKER" >&2
    [ "${REQUIRE_DOCKER:-0}" != 1 ] || exit 1
    export NO_DOCKER
    exec "$@"
}

python() {
    "${PYTHON:-python3}" "$@"
}

# Does the socket of DOCKER_HOST answer? A raw probe: no client library, no leaked sockets.
ping() {
    python - "$1" <<'END'
import socket, sys
try:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5)
        probe.connect(sys.argv[1])
        probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        sys.exit(b" 200 " not in probe.recv(100))
except OSError:
    sys.exit(1)
END
}

# The image: the binary, and the C library it needs when it is not static. Imported, because there is no registry.
import_image() {
    work=$1
    cp "$NATS_IMAGE_BINARY" "$work/nats-server"
    mkdir -p "$work/tmp"
    for library in $(ldd "$work/nats-server" 2>/dev/null | grep -o '/[^ ]*'); do
        mkdir -p "$work$(dirname "$library")"
        cp -L "$library" "$work$library"
    done
    tar -C "$work" -c . | docker import -c 'ENTRYPOINT ["/nats-server"]' -c 'EXPOSE 4222' - "$IMAGE" >/dev/null
}

# Second stage, inside private network and mount namespaces: start the engine, import, run, stop.
if [ "${1:-}" = inside ]; then
    tree=$2 state=$3
    shift 3
    ip link set lo up 2>/dev/null || python -c '
import fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))'
    # What the engine writes to /etc and /run stays in this namespace.
    mount -t tmpfs tmpfs /run
    mkdir -p "$state/etc-up" "$state/etc-work"
    mount -t overlay overlay -o "lowerdir=/etc,upperdir=$state/etc-up,workdir=$state/etc-work" /etc 2>/dev/null || true
    mkdir -p "$state/docker"
    PATH="$tree/usr/sbin:$tree/usr/bin:$tree/sbin:$PATH"
    LD_LIBRARY_PATH=$(find "$tree" -name '*.so.*' -exec dirname {} + | sort -u | tr '\n' ':')
    export PATH LD_LIBRARY_PATH DOCKER_HOST="unix://$state/docker.sock"
    dockerd --data-root "$state/docker" --exec-root "$state/exec" -p "$state/docker.pid" -H "$DOCKER_HOST" \
        --iptables=false --ip6tables=false --ip-forward=false >"$state/log" 2>&1 &
    engine=$!
    for _ in $(seq 1 120); do
        ping "$state/docker.sock" && break
        kill -0 "$engine" 2>/dev/null || break
        sleep 0.25
    done
    status=0
    if ping "$state/docker.sock" && mkdir "$state/image" && import_image "$state/image"; then
        # The libraries are for the engine's programs only: the command must see the machine's own.
        (unset LD_LIBRARY_PATH; NATS_IMAGE=$IMAGE "$@") || status=$?
    else
        tail -n 20 "$state/log" >&2
        status=99
    fi
    kill "$engine" 2>/dev/null || true
    wait "$engine" 2>/dev/null || true
    find /sys/fs/cgroup -depth -type d -path '*/docker*' -exec rmdir {} + 2>/dev/null || true
    exit "$status"
fi

[ "${1:-}" = run ] || { echo "usage: docker_engine.sh run COMMAND..." >&2; exit 2; }
shift
: "${NATS_IMAGE_BINARY:?names the nats-server for the image}"
export TESTCONTAINERS_RYUK_DISABLED=true TESTCONTAINERS_CONNECTION_MODE=docker_host

socket=${DOCKER_HOST:-unix:///var/run/docker.sock}
if command -v docker >/dev/null 2>&1 && ping "${socket#unix://}"; then
    echo "docker: using the engine at $socket" >&2
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    import_image "$work"
    NATS_IMAGE=$IMAGE "$@"
    exit 0
fi
[ "$(uname -s)" = Linux ] || without "no engine answers at $socket, and one can be started on Linux only" "$@"
[ "$(id -u)" = 0 ] || without "no engine answers at $socket, and only root can start one" "$@"
command -v unshare >/dev/null 2>&1 || without "no engine answers at $socket, and unshare is missing" "$@"

state=$(mktemp -d)
trap 'rm -rf "$state" 2>/dev/null || true' EXIT
echo "docker: unpacking an engine" >&2
# shellcheck disable=SC2086 # a list of package names
if ! reason=$(python "$here/private_apt.py" "$SUITE" "$state/apt" $PACKAGES 2>&1); then
    without "no engine answers at $socket, and none could be fetched: $reason" "$@"
fi
status=0
unshare --net --mount --propagation private sh "$here/docker_engine.sh" inside "$state/apt/tree" "$state" "$@" || status=$?
if [ "$status" = 99 ]; then
    without "no engine answers at $socket, and the unpacked one did not start here" "$@"
fi
exit "$status"
