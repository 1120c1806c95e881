"""Tests of serving_examples: a sentence encoder in Python and in C++ without Python."""
