# What service runs: a server that reads config.json, and reads it again on HUP.
RELOAD_SIGNAL=HUP

run() {
  exec node server.mjs
}

# Succeeds when the server answers with the configuration that lies here.
ready() {
  node server.mjs probe
}
