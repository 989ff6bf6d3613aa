"""File groups and file slices, as the timeline shows them."""
