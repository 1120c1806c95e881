"""Loops whose iterations overlap: copies that run ahead, products in flight, roles of warps."""
