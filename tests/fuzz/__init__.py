"""Fuzzing of everything that reads what a file, a variable or a command line says: `make fuzz`, `python -m tests.fuzz`."""
