{{ $port := get "ops/bucket" "hello_http" -}}
{
  "job": "{{ .Job }}",
  "version": "{{ .NewVersion }}",
  "worker": "{{ .WorkerIP }}",
  "port": {{ get "ops/bucket" "gateway_http" }},
  "peers": [
    {{- range $index, $peer := split (get "ops/job/hello" "workers") "," }}
    {{- if $index }},{{ end }}
    "{{ printf "http://%s:%s" $peer $port }}"
    {{- end }}
  ]
}
