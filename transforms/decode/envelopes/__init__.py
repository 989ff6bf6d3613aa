"""Decodes events that contain rows, such as the change events of a database."""
