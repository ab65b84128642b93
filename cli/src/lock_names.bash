
# Completes lock names too, if the server of DLOCK_URL answers within a second.
_dlock_names() {
    _dlock "$@"
    local word=${COMP_WORDS[COMP_CWORD]} names
    if [[ $COMP_CWORD -eq 2 && $word != -* && ${COMP_WORDS[1]} =~ ^(run|show|break)$ ]]; then
        mapfile -t names < <(timeout 1 dlock ls "$word*" 2>/dev/null | awk 'NR > 1 { print $1 }')
        COMPREPLY+=("${names[@]}")
        compopt -o default 2>/dev/null
    fi
}
complete -F _dlock_names -o nosort -o bashdefault dlock
