# Completion of strake for bash. The program itself answers, with the names that the daemon knows.
_strake() {
    local line=${COMP_LINE:0:COMP_POINT} current prefix index
    local -a words
    # COMP_WORDS is split at colons, which are part of NQNs and addresses.
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${words[-1]}
    mapfile -t COMPREPLY < <(
        _STRAKE_COMPLETE=bash _CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((${#words[@]} - 1)) \
            strake -- "${words[@]}" 2>/dev/null
    )
    # Bash replaces only the text after the last colon or equals sign.
    prefix=${current%"${current##*[:=]}"}
    if [[ -n $prefix && $COMP_WORDBREAKS == *[:=]* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
    fi
    # Names of files and hosts may have characters that the shell would interpret.
    for index in "${!COMPREPLY[@]}"; do
        if [[ ${COMPREPLY[index]} == *[![:alnum:]_./:=,@%+-]* ]]; then
            printf -v "COMPREPLY[index]" %q "${COMPREPLY[index]}"
        fi
    done
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/:] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -o default -o nosort -F _strake strake
