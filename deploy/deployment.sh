# shellcheck shell=bash disable=SC2154 # tool and module are the arguments of the script that sources this
# Shared by run-cluster, run-sentinel and run-quorum. Sourced, not executed.
#
# Servers are started from copies of the files in deploy/, with other ports and directories, and shorter leases. Each has
# its own working directory, by which end-deployment recognises its process.

# The maximum lease and the grace periods: shorter than in deploy/, to keep the demonstration short.
lease_ms=${LEASE_MS:-15000}
# Timeout for servers to start and deployments to become healthy.
timeout_s=60

server=${DLOCK_SERVER:-redis-server}
client=${server%-server}-cli
command -v "$client" >/dev/null || client=redis-cli
name=${0##*/}
# Process ids by port.
declare -A pids

say() {
    printf '\n== %s\n' "$*"
}

fail() {
    echo "$name: $*" >&2
    exit 1
}

# Stops servers by process id: SIGTERM, then SIGKILL after some seconds.
end_servers() {
    for _ in {1..25}; do
        # A server that writes its first AOF refuses to stop: try again.
        kill "$@" 2>/dev/null || return 0
        sleep 0.2
    done
    kill -9 "$@" 2>/dev/null || true
    wait
}

# Stops all servers when this script exits.
end_all() {
    trap - EXIT
    trap '' INT TERM HUP
    [ ${#pids[@]} -eq 0 ] || end_servers "${pids[@]}"
    echo "$name: all servers stopped" >&2
}
trap end_all EXIT
# The exit trap stops the servers. 128 + the signal number, as shells report it.
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# Prints a command as a user would type it, and runs it.
show() {
    echo "\$ $*"
    "$@"
}

# Waits until a command succeeds: wait_for WHAT COMMAND...
wait_for() {
    local what=$1 end=$((SECONDS + timeout_s))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || fail "timed out after $timeout_s s waiting for $what; see the logs in $directory"
        sleep 0.1
    done
}

# Empties the directory: begin_in DIRECTORY
begin_in() {
    mkdir -p "$1"
    directory=$(cd "$1" && pwd -P)
    rm -rf "$directory/servers"
    mkdir "$directory/servers"
}

# Replaces the value of a setting, which the file must contain: put FILE NAME VALUE
put() {
    local line found=
    while IFS= read -r line; do
        if [[ $line = "$2 "* ]]; then
            line="$2 $3" found=yes
        fi
        printf '%s\n' "$line"
    done <"$1" >"$1.new"
    [ "$found" ] || fail "the original of $1 has no line '$2 ...'"
    mv "$1.new" "$1"
}

# Copies a file of deploy/ into the directory of a process: copy_for PORT FILE
copy_for() {
    local own=$directory/servers/$1
    mkdir -p "$own"
    cp "$2" "$own/server.conf"
    put "$own/server.conf" port "$1"
    put "$own/server.conf" bind 127.0.0.1
    put "$own/server.conf" dir "\"$own\""
}

# The same for a server with the module.
copy_for_server() {
    copy_for "$1" "$2"
    put "$directory/servers/$1/server.conf" loadmodule "\"$module\""
    put "$directory/servers/$1/server.conf" dlock.max-lease-ms "$lease_ms"
}

# Starts a process with its copy: start PORT [OPTION...]
start() {
    local port=$1 own=$directory/servers/$1
    shift
    (cd "$own" && exec "$server" server.conf "$@") >>"$own/log" 2>&1 </dev/null &
    pids[$port]=$!
    echo $! >"$own/pid"
    wait_for "the server on port $port" answers "$port"
}

answers() {
    kill -0 "${pids[$1]}" 2>/dev/null || fail "the server on port $1 exited, see $directory/servers/$1/log"
    [ "$(ask "$1" PING)" = PONG ]
}

# Sends a command to the server on a port: ask PORT COMMAND...
ask() {
    local port=$1
    shift
    "$client" -p "$port" "$@"
}

# Waits until `dlock doctor` reports neither problems nor warnings, and prints its output without passed checks:
# see_doctor ARGUMENT...   the arguments of dlock
see_doctor() {
    local end=$((SECONDS + timeout_s))
    until "$tool" "$@" >"$directory/doctor.log" 2>&1; do
        if [ $SECONDS -ge $end ]; then
            cat "$directory/doctor.log" >&2
            fail "timed out after $timeout_s s waiting for a deployment without warnings"
        fi
        sleep 0.5
    done
    echo "\$ $tool $*"
    grep -v '^  ok ' "$directory/doctor.log"
}

# Crashes a server: kill_server PORT
kill_server() {
    echo "\$ kill -9 ${pids[$1]}"
    kill -9 "${pids[$1]}"
    # Otherwise the shell reports the killed job.
    wait "${pids[$1]}" 2>/dev/null || true
    unset "pids[$1]"
}

# Leaves the servers running for the user, until Ctrl-C: stay ARGUMENT...   of dlock, to try
stay() {
    say "Ready: Ctrl-C stops all servers"
    echo "$tool $*"
    echo "logs and configuration: $directory/servers"
    # Otherwise the shell reports jobs that others killed.
    while kill -0 "${pids[@]}" 2>/dev/null; do wait -n 2>/dev/null || true; sleep 1; done
}
