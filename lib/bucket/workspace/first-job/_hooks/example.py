"""An example of a hook: `ops hooks example` runs it on the control host, once for each allocation of this job.

"hooks" in manifest.json names each hook and the events on which its script runs: cli (as here), post_build, pre_deploy,
post_deploy, health_check, after_allocation_started, after_allocation_stopped, job_control. Delete what you do not need.
"""

import ops

print(f"{ops.job_name()} on {ops.allocation_ip()}, allocation {ops.allocation_index()}")

# A command on the worker:
# print(ops.run_ssh(ops.allocation_ip(), "uptime").stdout, end="")

# A password that is made once, on pre_deploy; a template has it by getSecret "password":
# import secrets
#
# if ops.get_store_value(f"secrets/job/{ops.job_name()}", "password").status_code == 404:
#     ops.put_job_secret("password", secrets.token_urlsafe(24)).raise_for_status()
