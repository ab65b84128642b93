
# Completes lock names too, if the server of DLOCK_URL answers within a second.
function __fish_dlock_lock_names
    timeout 1 dlock ls (commandline -ct)"*" 2>/dev/null | awk 'NR > 1 { print $1 }'
end
complete -c dlock -n "test (count (commandline -opc)) -eq 2; and __fish_seen_subcommand_from run show break" -f -a "(__fish_dlock_lock_names)"
