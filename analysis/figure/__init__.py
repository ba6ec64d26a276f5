"""One file per figure: what it takes from the results, and how it is drawn."""
