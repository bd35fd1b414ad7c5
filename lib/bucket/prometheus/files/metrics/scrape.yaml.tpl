# The metrics of ops itself: GET /metrics of its server. The token is a secret of this job:
#   ops tokens create prometheus --no-totp | ops kv set-secret @job@ ops_api_token
- job_name: ops
  # https where the server has a certificate.
  scheme: http
  # In the metrics the label job is the job that a metric tells of.
  honor_labels: true
  authorization:
    credentials: {{ getSecret "ops_api_token" | trim | printf "%q" }}
  static_configs:
    - targets: ["@target@"]
