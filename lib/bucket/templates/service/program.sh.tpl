# What @job@ runs on {{ .WorkerIP }}. The file `service` reads it, and starts, watches and ends the program.
HOST={{ .WorkerIP }}
PORT={{ get "ops/bucket" "@port@" }}

# The program. It stays in the foreground, writes its log to its output, and ends on TERM.
run() {
  exec python3 -m http.server --bind "$HOST" --directory public "$PORT"
}

# Succeeds once the program is ready; `start` and `restart` return then. The health check in manifest.json
# decides whether the program answers well.
ready() {
  listens "$PORT"
}

# Settings, each with its default:
# RELOAD_SIGNAL=HUP   the signal that lets the program read its files again (none: a reload restarts it)
# START_SECONDS=30    the longest time until the program is ready
# STOP_SECONDS=10     the longest time for the program to end; after that it is killed
# LOG_BYTES=10485760  a longer log is copied to logs/service.log.1 and emptied
