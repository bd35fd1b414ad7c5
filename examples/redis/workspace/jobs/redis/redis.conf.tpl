{{- $port := get "ops/bucket" "redis_tcp" -}}
{{- $primary := get "ops/job/redis" "worker_0" -}}
# {{ .Job }} {{ .NewVersion }} on {{ .WorkerIP }}. The paths start in data/.
bind {{ .WorkerIP }}
port {{ $port }}
requirepass {{ printf "%q" (getSecret "password") }}

# worker_0 is the first allocation that is not disabled. It is the primary, all others follow it.
masterauth {{ printf "%q" (getSecret "password") }}
replica-announce-ip {{ .WorkerIP }}
{{- if ne .WorkerIP $primary }}
replicaof {{ $primary }} {{ $port }}
{{- end }}
# Replicas start one after the other: none gains from waiting for the next.
repl-diskless-sync-delay 0

dir data
logfile ../logs/redis.log
# A primary that came back empty would empty its replicas: every write is on its disk within a second.
appendonly yes
appendfsync everysec
maxmemory {{ get "vars/job/redis" "maxmemory" }}
maxmemory-policy noeviction
