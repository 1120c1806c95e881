"""The subjects, one a file: SUBJECT says what is read, and from what seeds."""

NAMES = ("packs", "locks", "ttir", "schemas", "tuned", "traces", "caches", "commands", "settings", "wheels", "cpp", "figures")
