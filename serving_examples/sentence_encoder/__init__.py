"""The all-MiniLM-L6-v2 sentence encoder: its model, its tokens, and the files that the C++ programs serve."""
