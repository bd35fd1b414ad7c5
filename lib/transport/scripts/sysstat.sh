# Tells how busy this machine is: its counters twice, one second apart. See facts.sh for the form.

# counters <when>
counters() {
  sed "s/^/$1_uptime /" /proc/uptime
  sed -n "s/^cpu  */$1_cpu /p" /proc/stat
  # Two numbers of the device come before its name.
  sed "s/^ *[0-9]* *[0-9]* */$1_disk /" /proc/diskstats 2>/dev/null
  sed -n "s/^ *\([^: ]*\): */$1_net \1 /p" /proc/net/dev 2>/dev/null
}

sed -n 's/^\([A-Za-z]*\): *\([0-9]*\) kB$/memory \1 \2/p' /proc/meminfo
ls /sys/block 2>/dev/null | sed 's/^/block /'
counters before
sleep 1
counters after
echo end
