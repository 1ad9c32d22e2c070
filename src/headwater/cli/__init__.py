"""The command line. Each module is one subcommand or shared by several, and is imported only when it is used."""
