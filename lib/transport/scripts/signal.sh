# signal <group> <boot id> <signal>: sends a signal (0 for none) to a process group of that start of the machine, and
# says `running` or `gone`. Zombies that nobody collects have ended.
IFS= read -r boot </proc/sys/kernel/random/boot_id
lives() {
  kill -0 "-$1" 2>/dev/null || return 1
  [ -n "$(cat /proc/[0-9]*/stat 2>/dev/null | sed -n "s/^.*) [^ZX] [0-9]* $1 .*/x/p")" ]
}
if [ "$boot" != "$2" ] || ! lives "$1"; then
  echo gone
else
  [ "$3" = 0 ] || kill "-$3" "-$1" 2>/dev/null
  echo running
fi
