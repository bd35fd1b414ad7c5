# Tells the load and since when this machine runs: see facts.sh for the form.
sed 's/^/load /' /proc/loadavg
sed 's/^/uptime /' /proc/uptime
echo end
