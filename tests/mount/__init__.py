"""What a mounted store does, asked of the kernel."""
