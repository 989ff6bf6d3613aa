"""Reading of file slices (base files merged with logs), and planning of scans."""
