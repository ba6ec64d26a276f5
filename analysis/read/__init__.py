"""Files of results, read and checked: runs, their tables, validations, calibrations, bounds."""
