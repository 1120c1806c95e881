"""The language-model server in C++: its readers, its texts, its engine and its answers."""
