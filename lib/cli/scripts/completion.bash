_ops() {
  local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} typed word
  local -a words
  read -r -a words <<< "$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  typed=${words[${#words[@]} - 1]}
  COMPREPLY=()
  while IFS=$'\t' read -r word _; do
    case $word in
      :files) compopt -o default ;;
      :folders) compopt -o dirnames ;;
      *) COMPREPLY+=("${word#"${typed%"$2"}"}") ;;
    esac
  done < <(printf '%s\0' "${words[@]:1}" | "$1" completion words 2> /dev/null)
}
complete -F _ops ops
