"""From an object file to a function that this process calls."""
