#compdef ops
_ops() {
  local line word
  local -a names shown
  for line in "${(@f)$(printf '%s\0' "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" | "${(Q)words[1]}" completion words 2> /dev/null)}"; do
    word=${line%%$'\t'*}
    case $word in
      '') ;;
      :files) compset -P '*='; _files ;;
      :folders) compset -P '*='; _files -/ ;;
      *) names+=("$word"); shown+=("$word  ${line#*$'\t'}") ;;
    esac
  done
  (( $#names )) && compadd -l -d shown -a names
}
if [[ $funcstack[1] == _ops ]]; then _ops "$@"; else compdef _ops ops; fi
