"""The command line. Each module is a subcommand, or is shared by several, and is imported only when it is used."""
