"""Races between configs on real devices."""
