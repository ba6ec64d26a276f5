"""One file per kind of figure: what it takes from the results, and how it is drawn."""
