# shellcheck shell=bash
# Minimal Debian systems, for tests of packages. Sourced, not executed.

# Ends the test where such systems cannot be made.
needs_debian() {
    [ "$(id -u)" -eq 0 ] || { echo "skipped: the test of the package needs root"; exit 0; }
    local program
    for program in debootstrap unshare ip; do
        command -v "$program" >/dev/null || { echo "skipped: $program is not installed"; exit 0; }
    done
}

# Downloads Debian 12 into a directory, unless it is there: make_debian DIRECTORY [OPTION...] [-- COMMAND...]. The command
# runs in it once.
make_debian() {
    local base=$1 options=()
    shift
    [ ! -e "$base/complete" ] || return 0
    while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
    rm -rf "$base"
    debootstrap --variant=minbase "${options[@]}" bookworm "$base" >"$base.log"
    [ $# -eq 0 ] || chroot "$base" "${@:2}" >/dev/null
    touch "$base/complete"
}

# Runs the script /root/SCRIPT of a system: in_debian DIRECTORY SCRIPT. It has processes and network interfaces of its own.
in_debian() {
    # Processes end with the namespace.
    # shellcheck disable=SC2016
    unshare --mount --pid --net --fork --kill-child bash -euc '
        ip link set lo up
        mount -t proc proc "$1/proc"
        exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive \
            timeout 300 bash -eu "/root/$2"' _ "$1" "$2"
}
