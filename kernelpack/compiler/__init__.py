"""From ttir to an image for one target."""
