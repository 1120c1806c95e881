"""Passes from ttir to ttgir and over ttgir, one a file."""
