# A unit of the system where this runs as root (use_sudo), else of the user, for whom root has once to call
# `loginctl enable-linger`. unit.service says what runs. Its log: journalctl -u, or journalctl --user -u.
UNIT := @job@-{{ .AllocationID }}.service
ifeq ($(shell id -u),0)
SYSTEMCTL := systemctl
UNITS := /etc/systemd/system
else
SYSTEMCTL := systemctl --user
UNITS := $(HOME)/.config/systemd/user
export XDG_RUNTIME_DIR ?= /run/user/$(shell id -u)
endif

.PHONY: start stop restart reload status install

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

install:
	@mkdir -p $(UNITS)
	@install -m 0644 unit.service $(UNITS)/$(UNIT)
	@$(SYSTEMCTL) daemon-reload
