# Tells what this machine is: one fact a line, name and value with a blank between them; at last `end`.

# first <name> <file>: the first line of a file.
first() {
  { IFS= read -r line <"$2"; } 2>/dev/null && printf '%s %s\n' "$1" "$line"
}

# file_systems: the root and the first mount of every device.
file_systems() {
  echo /
  seen=' '
  while read -r device mount rest; do
    case $device in /dev/*) ;; *) continue ;; esac
    case $seen in *" $device "*) continue ;; esac
    seen="$seen$device "
    # A blank in a path stands there as \040.
    printf '%b\n' "$mount"
  done </proc/mounts
}

first hostname /proc/sys/kernel/hostname
first kernel /proc/sys/kernel/osrelease
echo "arch $(uname -m)"
sed -n 's/^PRETTY_NAME=/os /p' /etc/os-release 2>/dev/null
echo "cpu_count $(nproc 2>/dev/null || grep -c '^processor' /proc/cpuinfo)"
sed -n 's/^cpu MHz[^:]*: */cpu_mhz /p' /proc/cpuinfo
first cpu_max_khz /sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq
sed -n 's/^MemTotal: *\([0-9]*\) kB$/memory_kb \1/p' /proc/meminfo
sed -n 's/^btime /boot_time /p' /proc/stat
sed -n -e '/|-- /h' -e '/\/32 host LOCAL/{' -e 'g' -e 's/.*|-- /address /p' -e '}' /proc/net/fib_trie 2>/dev/null
sed -n 's/^\([0-9a-f]\{32\}\) .*/address6 \1/p' /proc/net/if_inet6 2>/dev/null
file_systems | while IFS= read -r mount; do
  df -kP "$mount" 2>/dev/null | sed -n '2s/^/disk /p'
done
for tool; do
  command -v "$tool" >/dev/null 2>&1 && echo "tool $tool"
done
echo end
