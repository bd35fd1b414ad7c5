# What @job@ runs on {{ .WorkerIP }}. The file `service` reads it, and starts, watches and ends the program.
HOST={{ .WorkerIP }}
PORT={{ get "ops/bucket" "@port@" }}

# The program. It stays in the foreground, writes its log to its output, and ends on TERM.
run() {
  exec python3 -m http.server --bind "$HOST" --directory public "$PORT"
}

# Succeeds once the program is ready; `start` and `restart` return then. Whether it answers well is for the gate in
# manifest.json.
ready() {
  listens "$PORT"
}

# What may be set here, with what counts else:
# RELOAD_SIGNAL=HUP   the signal that lets the program read its files again (none: a reload restarts it)
# START_SECONDS=30    so long the program may take until it is ready
# STOP_SECONDS=10     so long it may take to end; then it is killed
# LOG_BYTES=10485760  a log that is longer moves to logs/service.log.1
