{{ $port := get "ops/bucket" "hello_http" -}}
{
  "job": "{{ .Job }}",
  "version": "{{ .NewVersion }}",
  "worker": "{{ .WorkerIP }}",
  "port": {{ $port }},
  {{- with get "vars/job/hello" "greeting" }}
  "greeting": "{{ . }}",
  {{- end }}
  "peers": [
    {{- range $index, $peer := split (get "ops/job/hello" "workers") "," }}
    {{- if $index }},{{ end }}
    "{{ printf "http://%s:%s" $peer $port }}"
    {{- end }}
  ]
}
