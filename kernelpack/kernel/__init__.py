"""What a kernel is: its source, parameters, types, and the values that it computes with."""
