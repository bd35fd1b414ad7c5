# Tells the load and since when this machine runs: see facts.sh for the form. No program is started, and all is one write.
IFS= read -r load </proc/loadavg
IFS= read -r uptime </proc/uptime
printf 'load %s\nuptime %s\nend\n' "$load" "$uptime"
