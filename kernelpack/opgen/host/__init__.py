"""Host functions of ops: from Python's syntax to statements that C++ and fakes are printed from."""
