"""Where rows come from, and the offsets that say how far they were read."""
