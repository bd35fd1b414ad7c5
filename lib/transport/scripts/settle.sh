# settle <name>: waits for a sync of the tree <name> that is at work, and ends one that was cut off.
identify sync
patience=60
settle "$1"
