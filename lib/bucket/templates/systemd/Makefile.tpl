# A unit of the system where this runs as root (use_sudo), else of the user, for whom root has once to call
# `loginctl enable-linger`. unit.service says what runs. `ops logs` gives TAIL, the number of lines, and FOLLOW=1 to go on
# with new ones.
UNIT := @job@-{{ .AllocationID }}.service
ifeq ($(shell id -u),0)
SYSTEMCTL := systemctl
JOURNALCTL := journalctl
UNITS := /etc/systemd/system
else
SYSTEMCTL := systemctl --user
JOURNALCTL := journalctl --user
UNITS := $(HOME)/.config/systemd/user
export XDG_RUNTIME_DIR ?= /run/user/$(shell id -u)
endif
TAIL ?= 100

.PHONY: start stop restart reload status logs install

start: install
	@$(SYSTEMCTL) --quiet enable --now $(UNIT)

# Stopping what does not run is no error.
stop:
	@[ ! -e $(UNITS)/$(UNIT) ] || $(SYSTEMCTL) --quiet disable --now $(UNIT)
	@rm -f $(UNITS)/$(UNIT)
	@$(SYSTEMCTL) daemon-reload

restart: install
	@$(SYSTEMCTL) --quiet enable $(UNIT)
	@$(SYSTEMCTL) restart $(UNIT)

reload: install
	@$(SYSTEMCTL) --quiet enable $(UNIT)
	@$(SYSTEMCTL) reload-or-restart $(UNIT)

status:
	@$(SYSTEMCTL) is-active $(UNIT)

logs:
	@$(JOURNALCTL) --quiet --no-pager --unit $(UNIT) --lines $(TAIL) $(if $(FOLLOW),--follow)

install:
	@mkdir -p $(UNITS)
	@install -m 0644 unit.service $(UNITS)/$(UNIT)
	@$(SYSTEMCTL) daemon-reload
