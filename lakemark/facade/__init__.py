"""The methods of ``lakemark.Table``, by family; ``lakemark/table.py`` combines them."""
