"""What is known of a CPU and of a kernel's indices; changes nothing."""
