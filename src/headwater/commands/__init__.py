"""What acts on keys: one function a command, each choosing first and then calling mutators."""
