"""The settings: redis.conf's names and syntax, each declared once.

    setting.py    what a setting is; `setting` declares one
    kinds.py      integers, sizes, yes or no, choices, words, text: how each is parsed and spelled
    listening · storage · access · tls · clients · events · streams · execution · process
                  the declarations, by subject; a kind that only one setting has is defined with it
    fixed.py      names of redis.conf that have one possible value here
    config.py     `Config`, a value for each setting; `SETTINGS`, the declarations by name
    file.py       the syntax of configuration files
    loading.py    file, environment and flags make a `Config`
    rewriting.py  a `Config` makes the text of its file (CONFIG REWRITE)

Rule 1. A setting's name, type, default, bounds, summary and the reason why CONFIG SET cannot change
        it are written in its declaration and nowhere else. Flags, environment variables, files, CONFIG,
        url parameters of embedded stores and docs/reference/configuration.md are derived from it.
Rule 2. Nothing here applies a setting. Code that needs one is given the `Config`, or the part of it that
        covers its subject (`TlsConfig`), and reads the value there.
Rule 3. This package imports neither commands nor the server, so both can use it.
"""
