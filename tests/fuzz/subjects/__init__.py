"""The subjects, one a file: SUBJECT says what is read, and from what seeds."""

NAMES = (
    "packs", "locks", "manifests", "ttir", "schemas", "tuned", "figures", "traces", "caches", "commands", "settings", "wheels", "cpp",
    "gguf", "tokens", "bodies",
)  # fmt: skip
