# shellcheck shell=bash
# Shared by the scenarios. Sourced, not executed.

# Runs a command, and fails with its output if it does not succeed: expect WHAT COMMAND...
expect() {
    local what=$1
    shift
    "$@" >/tmp/output 2>&1 || {
        echo "FAILED: $what: $*" >&2
        cat /tmp/output >&2
        exit 1
    }
}

# All files but those that dpkg and apt keep for themselves.
files() {
    find / -xdev \( -path /proc -o -path /tmp -o -path /root -o -path /var/cache -o -path /var/lib/dpkg -o -path /var/log \
        -o -path /var/lib/apt \) -prune -o -print | sort
}
