"""The source of files: the files of a folder, on any storage."""
