# No classes: its being here compiles the module.
