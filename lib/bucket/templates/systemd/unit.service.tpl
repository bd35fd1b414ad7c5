[Unit]
Description=@job@ of the bucket {{ .BucketID }}
Wants=network-online.target
After=network-online.target

[Service]
# notify, for a program that tells when it is ready.
Type=exec
# A unit of the system runs as root without this line:
# User=www-data
WorkingDirectory={{ .JobPath }}
ExecStart=/usr/bin/env python3 -m http.server --bind {{ .WorkerIP }} --directory public {{ get "ops/bucket" "@port@" }}
# ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=1
TimeoutStartSec=30
TimeoutStopSec=10
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ReadWritePaths={{ .JobPath }}

[Install]
WantedBy=default.target
