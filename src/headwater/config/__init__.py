"""The server's settings, with the names and syntax of redis.conf. Each is declared once.

    setting.py    `Setting`, the declaration of a setting; `setting` makes one
    kinds.py      parsing and formatting of values: integers, sizes, yes or no, choices, words, text
    listening · storage · access · tls · clients · memory · events · streams · execution · process
                  the declarations, by subject; a kind that only one setting uses is defined with it
    fixed.py      names of redis.conf that accept a single value
    inert.py      names of redis.conf that have no effect, and aliases of settings
    config.py     `Config`, the values of all settings; `SETTINGS`, the declarations by name
    file.py       parses the syntax of configuration files
    loading.py    builds a `Config` from flags, environment and file
    rewriting.py  formats a `Config` as the text of its file (CONFIG REWRITE)

Rule 1. The declaration of a setting is the only place for its name, type, default, bounds, summary
        and the reason why CONFIG SET cannot change it. Flags, environment variables, files, CONFIG,
        url parameters of embedded stores and docs/reference/configuration.md are derived from it.
Rule 2. This package does not apply settings. Code that needs one receives the `Config`, or the part
        that covers its subject (`TlsConfig`), and reads the value from it.
Rule 3. This package imports neither commands nor the server, so both can use it.
"""
