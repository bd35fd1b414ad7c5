function __ops_complete
  set -l words (commandline -opc) (commandline -ct)
  for line in (printf '%s\0' $words[2..-1] | $words[1] completion words 2> /dev/null)
    switch $line
      case ':files*'
        __fish_complete_path (commandline -ct)
      case ':folders*'
        __fish_complete_directories (commandline -ct)
      case '*'
        echo $line
    end
  end
end
complete -c ops -f -a '(__ops_complete)'
