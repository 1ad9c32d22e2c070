"""Words to calls: each file is one word of the command line, imported when it is typed."""
