"""Drop-in imports: the interfaces of tools that people already use, answered by firstfault."""
