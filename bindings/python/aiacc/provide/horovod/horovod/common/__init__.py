"""What the frameworks' modules of Horovod share, and others import."""
