# What @job@ runs on {{ .WorkerIP }}. Folders are mounted, not files: a deploy replaces files.
services:
  @job@:
    image: docker.io/library/nginx:1.28
    restart: unless-stopped
    ports:
      - "{{ .WorkerIP }}:{{ get "ops/bucket" "@port@" }}:80"
    volumes:
      - ./public:/usr/share/nginx/html:ro
    healthcheck:
      test: ["CMD", "curl", "-fsS", "-o", "/dev/null", "http://127.0.0.1/"]
      interval: 2s
      timeout: 2s
      retries: 15
    stop_grace_period: 10s
    logging:
      driver: json-file
      options:
        max-size: 10m
        max-file: "3"
