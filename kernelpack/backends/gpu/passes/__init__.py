"""Passes over ttgir that every GPU wants, one a file."""
