<!doctype html><title>{{ .Job }}</title><p>{{ .Job }} works on {{ .WorkerIP }}.</p>
