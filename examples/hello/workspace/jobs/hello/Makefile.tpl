# {{ .Job }} on {{ .WorkerIP }}, port {{ get "ops/bucket" "hello_http" }}
.PHONY: start stop restart reload status

start stop restart reload status:
	@sh ./service $@
