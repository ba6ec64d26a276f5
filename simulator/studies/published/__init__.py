"""Published tables and figures beside this project's numbers: `published.table=NAME`."""

TABLES = {  # name to the function, of a whole configuration, that gives its lines
    "decoding": "decoding:decoding_lines",
    "cast_width": "cast:cast_width_lines",
    "cast_latency": "cast:cast_latency_lines",
    "cast_mass": "cast:cast_mass_lines",
    "treespark_budget": "treespark:treespark_budget_lines",
    "treespark_theta": "treespark:treespark_theta_lines",
    "treespark_load": "treespark:treespark_load_lines",
    "dspark_lengths": "dspark:dspark_lengths_lines",
    "dspark_cliff": "dspark:dspark_cliff_lines",
}
