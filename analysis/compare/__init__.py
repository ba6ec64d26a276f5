"""Numbers beside numbers: which runs may stand in one table, and what follows from them."""
