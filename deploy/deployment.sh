# shellcheck shell=bash disable=SC2154 # tool and module are the arguments of the script that sources this
# What run-cluster and run-sentinel share. Sourced, not run.
#
# Servers are started from copies of the files in deploy/, with other ports, folders and shorter leases. Each has a
# folder of its own, which is its working directory: so a process that is found by its number is known to be ours.

# The longest lease here, and so the length of the graces. The files say more: that is long to watch.
lease_ms=${LEASE_MS:-15000}
# No server takes longer to start, no deployment longer to settle.
patience_s=60

server=${DLOCK_SERVER:-redis-server}
client=${server%-server}-cli
command -v "$client" >/dev/null || client=redis-cli
name=${0##*/}
# The processes that run, by folder.
declare -A pids

say() {
    printf '\n== %s\n' "$*"
}

fail() {
    echo "$name: $*" >&2
    exit 1
}

# Ends servers by their numbers, in good order if they do so within some seconds.
end_servers() {
    for _ in {1..25}; do
        # One that writes its first log refuses to end, and is asked again.
        kill "$@" 2>/dev/null || return 0
        sleep 0.2
    done
    kill -9 "$@" 2>/dev/null || true
    wait
}

# Ends all that was started, however this script ends.
end_all() {
    trap - EXIT
    trap '' INT TERM HUP
    [ ${#pids[@]} -eq 0 ] || end_servers "${pids[@]}"
    echo "$name: all servers have ended" >&2
}
trap end_all EXIT
# The exit is what ends the servers. 128 + the signal, as shells tell it.
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# Runs a command and shows it, as a user would type it.
show() {
    echo "\$ $*"
    "$@"
}

# Waits until a command succeeds: wait_for WHAT COMMAND...
wait_for() {
    local what=$1 end=$((SECONDS + patience_s))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || fail "waited $patience_s s in vain for $what; the logs are in $folder"
        sleep 0.1
    done
}

# Makes sure that nobody has these ports, before anything is started.
check_ports() {
    local port
    for port; do
        [ "$port" -le 65535 ] || fail "port $port is too large: begin with a smaller one (PORT=7401)"
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            fail "port $port is taken: 'make down' ends what was left behind; or begin elsewhere: PORT=7501"
        fi
    done
}

# Begins anew in a folder: begin_in FOLDER
begin_in() {
    mkdir -p "$1"
    folder=$(cd "$1" && pwd -P)
    rm -rf "$folder/servers"
    mkdir "$folder/servers"
}

# Replaces the value of a line in a file, which has to have it: put FILE NAME VALUE
put() {
    local line found=
    while IFS= read -r line; do
        if [[ $line = "$2 "* ]]; then
            line="$2 $3" found=yes
        fi
        printf '%s\n' "$line"
    done <"$1" >"$1.new"
    [ "$found" ] || fail "there is no line '$2 ...' in the file that $1 is a copy of"
    mv "$1.new" "$1"
}

# Copies a file of deploy/ for a process on a port, into a folder of its own: copy_for PORT FILE
copy_for() {
    local own=$folder/servers/$1
    mkdir -p "$own"
    cp "$2" "$own/server.conf"
    put "$own/server.conf" port "$1"
    put "$own/server.conf" bind 127.0.0.1
    put "$own/server.conf" dir "\"$own\""
}

# The same for a server with the module.
copy_for_server() {
    copy_for "$1" "$2"
    put "$folder/servers/$1/server.conf" loadmodule "\"$module\""
    put "$folder/servers/$1/server.conf" dlock.max-lease-ms "$lease_ms"
}

# Starts a process on its copy: start PORT [OPTION...]
start() {
    local port=$1 own=$folder/servers/$1
    shift
    (cd "$own" && exec "$server" server.conf "$@") >>"$own/log" 2>&1 </dev/null &
    pids[$port]=$!
    echo $! >"$own/pid"
    wait_for "the server on port $port" answers "$port"
}

answers() {
    kill -0 "${pids[$1]}" 2>/dev/null || fail "the server on port $1 has ended, see $folder/servers/$1/log"
    [ "$(ask "$1" PING)" = PONG ]
}

# Asks the server on a port: ask PORT COMMAND...
ask() {
    local port=$1
    shift
    "$client" -p "$port" "$@"
}

# Waits until the doctor finds neither problems nor warnings, and shows what it says, without the checks that passed:
# see_doctor URL
see_doctor() {
    local end=$((SECONDS + patience_s))
    until "$tool" -u "$1" doctor >"$folder/doctor.log" 2>&1; do
        if [ $SECONDS -ge $end ]; then
            cat "$folder/doctor.log" >&2
            fail "waited $patience_s s in vain for a deployment without warnings"
        fi
        sleep 0.5
    done
    echo "\$ $tool -u $1 doctor"
    grep -v '^  ok ' "$folder/doctor.log"
}

# Leaves the servers running for the user, until Ctrl-C.
stay() {
    local port
    say "Ready: Ctrl-C ends all"
    echo "dlock -u $1 top"
    echo "logs and configuration: $folder/servers"
    while kill -0 "${pids[@]}" 2>/dev/null; do wait -n || true; sleep 1; done
}
