"""Which of several records with one key survives: the one merge, in memory and streamed."""
