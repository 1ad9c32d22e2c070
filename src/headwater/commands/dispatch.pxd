# Compiled for what it calls; its own values need no C types.
