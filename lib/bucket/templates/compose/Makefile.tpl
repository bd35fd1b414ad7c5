# Containers by Docker Compose, as compose.yaml describes them. The project has the allocation's name, so jobs and workers
# on one machine do not meet. `ops logs` gives TAIL, the number of lines, and FOLLOW=1 to go on with new ones.
COMPOSE := docker compose --project-name @job@-{{ .AllocationID }}
TAIL ?= 100

.PHONY: start stop restart reload status logs

# Returns when every container is healthy. Containers that run as compose.yaml says are left alone.
start reload:
	@$(COMPOSE) up --detach --wait --remove-orphans

stop:
	@$(COMPOSE) down --remove-orphans

restart:
	@$(COMPOSE) up --detach --wait --force-recreate --remove-orphans

status:
	@$(COMPOSE) ps
	@[ -n "$$($(COMPOSE) ps --quiet --status running)" ]

logs:
	@$(COMPOSE) logs --no-color --tail $(TAIL) $(if $(FOLLOW),--follow)
