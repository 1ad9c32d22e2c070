"""The command line: each module is one subcommand, imported only when it is used."""
