{{ get "vars/job/redis" "password" }}
