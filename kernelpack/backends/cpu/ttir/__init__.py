"""Rewrites of ttir that the CPU backend alone wants."""
