"""Makes the password of all workers before the first deploy; clients and replication use it."""

import secrets

import ops

# The hooks of a batch run at the same time; only one of them may find that there is none.
ops.acquire_semaphore("password").raise_for_status()
try:
    found = ops.get_store_value(f"secrets/job/{ops.job_name()}", "password")
    if found.status_code == 404:
        ops.put_job_secret("password", secrets.token_urlsafe(32)).raise_for_status()
        print("made the password")
    else:
        found.raise_for_status()
finally:
    ops.release_semaphore("password")
