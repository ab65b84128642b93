# Completes lock names, if the server of DLOCK_URL answers within a second.
_dlock_lock_names() {
    local -a names
    names=(${(f)"$(timeout 1 dlock ls "$PREFIX*" 2>/dev/null | awk 'NR > 1 { print $1 }')"})
    compadd -a names
}

